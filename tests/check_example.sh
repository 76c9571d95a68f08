#!/usr/bin/env bash
# check_example.sh - docs/example.c compiles as a user would compile it, against the header and the library
# alone, and does what it says.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
jempp=${JEMPP:-build/jempp}
export JEMPP_MODULE_DIR=${JEMPP_MODULE_DIR:-$PWD/build}

# shellcheck disable=SC2046
${CC:-cc} -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -Iinclude docs/example.c build/release/libjempp.a \
    $(make -s print-libs) -o "$tmp/example"
"$jempp" train --data shapes --side 8 --model wrn-10-1 --batch 10 --buffer 40 --train-images 200 --valid-images 40 \
    --steps 2 --iterations 2 --threads 1 --out "$tmp/run" >/dev/null 2>&1
"$jempp" sample "$tmp/run" --from centres --class star --zoom 1 --out "$tmp/star.png" >/dev/null

"$tmp/example" "$tmp/run" "$tmp/star.png" "$tmp/four.png" >"$tmp/out"
cat "$tmp/out"
grep -qE 'star.png: [a-z ]+, p\(y\|x\) = 0\.[0-9]{4}, log p\(x\) \+ c = [0-9.-]+$' "$tmp/out"
grep -q 'four.png: 4 samples' "$tmp/out"
[ "$(head -c 4 "$tmp/four.png" | tail -c 3)" = PNG ]
if "$tmp/example" "$tmp/nothing" a b >"$tmp/out" 2>&1; then echo "a model that is not there was opened"; exit 1; fi
grep -q nothing "$tmp/out"
echo "1 passed, 0 failed"
