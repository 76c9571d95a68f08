#!/usr/bin/env bash
# model_test.sh - the model that comes with the program, straight after a clone: it reads pictures that one like it has drawn
# (tests/pictures, fresh chains of the model that was included before) and draws more. JEMPP is the program.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
model=$here/../models/cifar10-wrn-16-4.safetensors
case $jempp in */asan/* | */cov/* | */poison/*) echo "skipped: the network is large for a program that watches itself" && exit 0 ;; esac

# What it answered in fp32 on the CPU when it was added: class, p(y|x), log p(x) + c.
expected() {
    cat <<'X'
airplane 0.9987 2.118
automobile 1.0000 3.409
bird 0.9996 2.313
cat 0.9998 2.448
deer 1.0000 3.306
dog 0.9999 3.205
frog 1.0000 3.347
horse 0.9999 1.741
ship 1.0000 2.950
truck 1.0000 4.182
X
}
answers_are_the_same() {
    expected | paste -d' ' - <(sed 1d out) |
        awk '{ d = $3 - $7; p = $2 - $6; if ($1 != $5 || d * d > 4e-4 || p * p > 2.5e-5 || $8 != "in") bad++ } END { exit bad || NR != 10 }'
}
"$jempp" predict "$model" "$here"/pictures/*.png >out 2>err
check "reads ten pictures as ever" answers_are_the_same
"$jempp" sample "$model" --count 10 --batch 10 --steps 5 --out grid.png >out 2>err
check "draws" grep -q 'grid.png: 10 images' out
[ "$failed" = 0 ]
