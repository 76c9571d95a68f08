#!/usr/bin/env bash
# gpu_ranks.sh - what one GPU can show of training on several: that NCCL inside the recorded step costs at most 1 %
# (LIMIT, in %), with one rank; and that two ranks on the one GPU, with sums through MPI, train as one does. Works in a
# source tree and in a bundle. Without NCCL or mpirun it says so and leaves that part out.
#
# JEMPP is the program; ROUNDS (6) and ITERATIONS (20) are those of the benchmark, of which the minimum counts.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
jempp=${JEMPP:-$here/build/jempp}
[ -x "$jempp" ] || jempp=$here/bin/jempp
why=$("$jempp" info --model wrn-10-1 --device cuda 2>&1 >/dev/null) || { echo "gpu_ranks: no GPU can be used: $why" >&2 && exit 1; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
failed=0
verdict() { if [ "$1" = 0 ]; then echo "ok: $2"; else echo "FAILED: $2"; failed=1; fi; }

# ---- NCCL with one rank, inside the recorded step
step() {        # step OPTION...: ms of the fastest of ITERATIONS steps
    "$jempp" bench --device cuda --model wrn-28-10 --batch 64 --steps 10 --px clean --iterations "${ITERATIONS:-20}" "$@" \
        2>err | sed -n 's/^whole iteration.*least \([0-9.]*\)).*/\1/p'
}
if [ -z "$(step --ranks 1)" ]; then
    echo "skipped: NCCL with one rank: $(tail -n 1 err)"
else
    for ((i = 0; i < ${ROUNDS:-6}; i++)); do
        echo "$(step) $(step --ranks 1)"
    done | tee steps
    awk -v limit="${LIMIT:-1}" 'NR == 1 || $1 < a { a = $1 } NR == 1 || $2 < b { b = $2 } END {
        printf "one rank: %.2f ms per step, through NCCL %.2f ms: %+.2f %%\n", a, b, 100 * (b / a - 1)
        exit !(b <= a * (1 + limit / 100)) }' steps
    verdict $? "NCCL inside the recorded step costs at most ${LIMIT:-1} %"
fi

# ---- two ranks on this GPU
if ! command -v mpirun >/dev/null; then
    echo "skipped: two ranks: no mpirun"
    exit $failed
fi
small="--data shapes --model wrn-16-4 --batch 32 --train-images 2000 --valid-images 200 --buffer 400 --steps 5 --warmup 0
    --decay-factor 1 --iterations 20 --device cuda --precision fp32 --conv direct --deterministic"
compare() {     # compare RUN RUN TOLERANCE: losses, f(x), f(x_q) of the logs
    awk -F'\t' -v tolerance="$3" 'NR == FNR { a[FNR] = $0; n = FNR; next }
        FNR > 1 { split(a[FNR], v); for (i = 5; i <= 9; i++) if (i != 7) { m = v[i] < 0 ? -v[i] : v[i]
                      d = (v[i] - $i) / (1 + m); if (d < 0) d = -d; if (d > far) far = d } }
        END { printf "    largest difference %.2g, allowed %g\n", far, tolerance
              exit FNR != n || n < 20 || !(far <= tolerance) }' "$1/log.tsv" "$2/log.tsv"
}
# shellcheck disable=SC2086
pair() {        # pair NAME TOLERANCE OPTION...: one rank and two
    "$jempp" train $small "${@:3}" --out "$1-1" >out 2>&1 || { tail -n 3 out; verdict 1 "$1: one rank"; return; }
    mpirun -n 2 "$jempp" train $small "${@:3}" --share-gpu --out "$1-2" >out 2>&1 ||
        { tail -n 12 out; verdict 1 "$1: two ranks"; return; }
    compare "$1-1" "$1-2" "$2"
    verdict $? "$1: two ranks on one GPU have the losses of one"
}
pair plain 1e-3 --norm none --optimizer adam --lr 1e-4
pair sync 1e-2 --lr 0.01 --sync-bn
# shellcheck disable=SC2086
mpirun -n 2 "$jempp" train $small --out refused >out 2>&1
grep -q "ranks 0 and 1 have the same GPU" out
verdict $? "two ranks on one GPU are refused without --share-gpu"
[ $failed = 0 ] || tail -n 5 out
exit $failed
