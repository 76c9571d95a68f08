#!/usr/bin/env bash
# gpu_run_rate.sh [JEMPP] - what a run costs beside its iterations, on this machine's GPU: how long finding kernels
# takes, and the rate of a whole run, with validation, a picture and a checkpoint every epoch, against that of
# `jempp bench`. Fails where the run is more than LIMIT (2) per cent slower, or the search takes over SEARCH (15) s.
#
# MODEL (wrn-28-10), STEPS (5: M), EPOCHS (4; the first does not count) and ITERATIONS (700, per epoch) are the run's;
# DEVICE (cuda) may be cpu. Checkpoints go to TMPDIR: it should be on the disk that runs are written to.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
jempp=${1:-$here/build/jempp} model=${MODEL:-wrn-28-10} m=${STEPS:-5} epochs=${EPOCHS:-4} n=${ITERATIONS:-700}
batch=64 valid=$((n * batch / 10 > 5000 ? 5000 : n * batch / 10 + 1))
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
same="--device ${DEVICE:-cuda} --model $model --batch $batch --steps $m --px shared"
seconds() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }

# Noise in place of images: only the time matters. Records of CIFAR-10: a label, then 3072 bytes.
python3 - "$tmp/noise.bin" $((n * batch + valid)) <<'END'
import os, sys
with open(sys.argv[1], "wb") as out:
    for i in range(int(sys.argv[2])):
        out.write(bytes([i % 10]) + os.urandom(3072))
END

run() {         # run OPTION...
    # shellcheck disable=SC2086
    "$jempp" train --data "cifar-file:$tmp/noise.bin" $same --valid-images $valid --train-images $((n * batch)) \
        --lr 1e-5 --gap-limit 0 --ce-limit 0 "$@" >"$tmp/out" 2>&1 || { tail -n 5 "$tmp/out" >&2 && exit 1; }
}

export XDG_CACHE_HOME=$tmp/cache                            # kernels found earlier do not count
start=$EPOCHREALTIME; run --iterations 1 --out "$tmp/cold"; cold=$(seconds "$start")
start=$EPOCHREALTIME; run --iterations 1 --out "$tmp/warm"; warm=$(seconds "$start")
rm -r "$tmp/cold" "$tmp/warm"
search=$(awk -v a="$cold" -v b="$warm" 'BEGIN { printf "%.1f", a - b }')
echo "finding kernels: $search s (a run of one step: $cold s without, $warm s with those found before)"

# shellcheck disable=SC2086
bench=$("$jempp" bench $same --iterations 400 --json 2>/dev/null | sed -n 's/.*"iteration_ms": *\([0-9.]*\).*/\1/p')
run --epochs "$epochs" --out "$tmp/run"
du -sh "$tmp/run/last.safetensors" | awk '{ print "a checkpoint: " $1 }'
awk -F'\t' -v n="$n" -v epochs="$epochs" -v bench="$bench" -v limit="${LIMIT:-2}" -v search="$search" -v most="${SEARCH:-15}" '
    $1 == n - 1 { first = $3 }
    $1 == n * epochs - 1 { last = $3 }
    END {
        ms = 1e3 * (last - first) / (n * (epochs - 1))
        over = 100 * (ms / bench - 1)
        printf "bench: %.2f ms per iteration, %.2f per second\n", bench, 1e3 / bench
        printf "whole run: %.2f ms, %.2f per second: %.2f %% more time\n", ms, 1e3 / ms, over
        exit over > limit || search > most
    }' "$tmp/run/log.tsv"
