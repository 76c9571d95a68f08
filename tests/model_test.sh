#!/usr/bin/env bash
# model_test.sh - the model that comes with the program, straight after a clone: it reads pictures that it has drawn itself
# (tests/pictures, fresh chains of its own) and draws more. JEMPP is the program.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
model=$here/../models/cifar10-wrn-16-4.safetensors
case $jempp in */asan/* | */cov/* | */poison/*) echo "skipped: the network is large for a program that watches itself" && exit 0 ;; esac

# What it answered in fp32 on the CPU when it was added: class, p(y|x), log p(x) + c.
expected() {
    cat <<'X'
airplane 0.9727 1.485
automobile 0.9995 2.972
bird 0.9940 3.038
cat 0.9911 3.054
deer 0.9997 3.193
dog 0.9954 3.757
frog 0.9996 4.239
horse 0.9967 2.683
ship 0.9999 2.837
truck 1.0000 4.140
X
}
answers_are_the_same() {
    expected | paste -d' ' - <(sed 1d out) |
        awk '{ d = $3 - $7; p = $2 - $6; if ($1 != $5 || d * d > 4e-4 || p * p > 2.5e-5 || $8 != "in") bad++ } END { exit bad || NR != 10 }'
}
"$jempp" predict "$model" "$here"/pictures/*.png >out 2>err
check "reads ten pictures as ever" answers_are_the_same
"$jempp" sample "$model" --count 10 --steps 5 --out grid.png >out 2>err
check "draws" grep -q 'grid.png: 10 images' out
[ "$failed" = 0 ]
