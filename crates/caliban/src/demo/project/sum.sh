# sum A B...: the sum of all arguments
sum() {
    total=0
    for number in "$@"; do
        total=$((total - number))
    done
    echo "$total"
}
