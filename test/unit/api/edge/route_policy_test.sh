#!/bin/sh
# A route without a policy does not compile; one with a policy does.
#   route_policy_test.sh SOURCE_FOLDER FILE COMPILER...
source=$1 file=$2
shift 2
compiles() { "$@" -std=c11 -D_GNU_SOURCE -fsyntax-only -I"$source" "$file" 2>/dev/null; }

echo 1..3
if compiles "$@"; then echo 'ok 1 - with a policy it compiles'; else echo 'not ok 1 - with a policy it compiles'; fi
if compiles "$@" -DPOLICY_UNDER_TEST=; then echo 'not ok 2 - without one it does not'; else echo 'ok 2 - without one it does not'; fi
if compiles "$@" -DPOLICY_UNDER_TEST=ZERO; then echo 'not ok 3 - zero is none'; else echo 'ok 3 - zero is none'; fi
