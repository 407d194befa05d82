#!/bin/sh
# Runs every test in tests/; fails when one of them fails.
cd "$(dirname "$0")" || exit 1
failed=0
for test in tests/*.sh; do
    if sh "$test"; then
        echo "ok      $test"
    else
        echo "FAILED  $test"
        failed=1
    fi
done
exit $failed
