. lib/sum.sh
[ "$(sum 1 2 3)" = 6 ] || { echo "sum 1 2 3 is $(sum 1 2 3), not 6"; exit 1; }
