#!/usr/bin/env bash
# model_test.sh - the model that comes with the program, straight after a clone: it reads pictures that it has drawn itself
# (tests/pictures, fresh chains of its own) and draws more. JEMPP is the program.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
model=$here/../models/cifar10-wrn-16-4.safetensors
case $jempp in */asan/* | */cov/* | */poison/*) echo "skipped: the network is large for a program that watches itself" && exit 0 ;; esac

# What it answered in fp32 on the CPU when its temperature was fitted: class, p(y|x), log p(x) + c.
expected() {
    cat <<'X'
airplane 0.9979 1.854
automobile 1.0000 3.379
bird 0.9999 3.638
cat 0.9998 3.783
deer 1.0000 3.849
dog 0.9999 4.790
frog 1.0000 5.206
horse 0.9999 2.958
ship 1.0000 3.559
truck 1.0000 4.880
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
