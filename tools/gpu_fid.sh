#!/usr/bin/env bash
# gpu_fid.sh JEMPP DATA WEIGHTS OUT [MODEL] - FID on a GPU, for docs/results.md: CIFAR-10's test set against its
# training set in each precision (literature: 3.15), the time that 50,000 images take, and fresh chains of MODEL
# with 40, 100, 200 and 400 steps. DATA has cifar-10-batches-bin; WEIGHTS is a file for --inception; results go
# to OUT as JSON. Exits 1 where the default precision's figure is not 3.15 +- 0.01, or another's is 0.05 off it.
set -eu
jempp=$1 data=$2 weights=$3 out=$4 model=${5-}
mkdir -p "$out"
export JEMPP_DATA=$out/cache
parts() {                                                   # what each part of a comparison took
    for part in open features statistics fid pairs; do printf ' %s %.2f s' $part "$(number "$1" seconds_$part)"; done
    echo
}
number() { sed -n "s/^ *\"$2\": \([-0-9.e]*\),*$/\1/p" "$1" | head -n 1; }

bad=0
for precision in tf32 fp32 bf16; do
    option=(--precision $precision)
    [ $precision != tf32 ] || option=()                     # the default
    result=$out/test-$precision.json
    "$jempp" fid cifar10:test cifar10 --device cuda --data-dir "$data" --inception "$weights" --json \
        ${option[@]+"${option[@]}"} >"$result"
    echo "$precision: FID $(number "$result" fid), $(number "$result" seconds) s for 60,000 images and the comparison:$(parts "$result")"
    within=$([ $precision = tf32 ] && echo 0.01 || echo 0.06)
    awk -v fid="$(number "$result" fid)" -v within="$within" 'BEGIN { d = fid - 3.15; exit !(d <= within && d >= -within) }' ||
        { echo "$precision: expected 3.15 +- $within" && bad=1; }
done

# statistics of 50,000 images (with weights that have a softmax layer they are computed twice, for IS)
rm -rf "$JEMPP_DATA/fid"
start=$(date +%s.%N)
"$jempp" fid cifar10 cifar10 --device cuda --data-dir "$data" --inception "$weights" --json >"$out/train.json"
echo "50,000 images to statistics, start included, and their comparison: $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { print b - a }') s:$(parts "$out/train.json")"

for steps in 40 100 200 400; do
    [ "$model" ] || break
    "$jempp" eval "$model" --tasks fid --steps $steps --count 10000 --device cuda --data-dir "$data" \
        --inception "$weights" --out "$out/chains-$steps" --json >"$out/chains-$steps.json"
    echo "$steps steps: FID $(number "$out/chains-$steps.json" fid), seconds $(number "$out/chains-$steps.json" seconds)"
done
exit $bad
