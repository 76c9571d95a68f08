#!/usr/bin/env bash
# gpu_check.sh [LOG] - runs the GPU tests and the benchmark on this machine's GPU, and appends a line with card, driver,
# revision and figures to LOG (docs/gpu-log.tsv; in a bundle gpu-log.tsv). Works in a source tree, where it builds what
# is missing, and in a bundle. Fails without a GPU, and if a test fails: then nothing is appended.
#
# JEMPP is the program; ROUNDS (2) and ITERATIONS (20) are those of the benchmark, of which the minimum counts.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "gpu_check: $*" >&2 && exit 1; }

gpu=(test_cuda test_cuda_ops test_cuda_step test_muon)
if [ -f "$here/Makefile" ]; then
    jempp=${JEMPP:-$here/build/jempp} tests=$here/build/release/tests log=${1:-$here/docs/gpu-log.tsv}
    [ -n "${JEMPP-}" ] || make -C "$here" -j"$(nproc)" all tests TESTS="${gpu[*]}" || fail "the build failed"
else
    jempp=${JEMPP:-$here/bin/jempp} tests=$here/tests log=${1:-$here/gpu-log.tsv}
fi
[ -x "$jempp" ] || fail "$jempp: no such program"
why=$("$jempp" info --model wrn-10-1 --device cuda 2>&1 >/dev/null) || fail "no GPU can be used: $why"

out=$(mktemp) && trap 'rm -f "$out"' EXIT
export JEMPP=$jempp
JOBS=1 "$here/tests/run.sh" "${gpu[@]/#/$tests/}" "$here/tests/gpu_test.sh" | tee "$out"
passed=$(tail -n 1 "$out")
case $passed in *", 0 failed") ;; *) fail "tests failed: $passed" ;; esac

best() {        # best MODEL M: milliseconds per iteration, the minimum over ROUNDS
    local i
    for ((i = 0; i < ${ROUNDS:-2}; i++)); do
        "$jempp" bench --device cuda --model "$1" --batch 64 --steps "$2" --px shared --iterations "${ITERATIONS:-20}" \
            --json 2>/dev/null | sed -n 's/.*"iteration_ms": *\([0-9.]*\).*/\1/p'
    done | sort -n | head -n 1 | awk '{ printf "%.2f", $1 } END { exit NR == 0 }' || fail "jempp bench --model $1 failed"
}
device=$("$jempp" --version | sed -n 's/^cuda  *//p')
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
revision=$("$jempp" --version | sed -n '1s/^jempp //p')
row=$(printf '%s\t%s\t%s\t%s\t%s\t%s' "$(date -u +%Y-%m-%dT%H:%MZ)" "$revision" "${device%%,*}" "${driver:-unknown}" \
    "$(sed -n 's/.*cuDNN \([0-9.]*\).*/\1/p' <<<"$device")" "${passed%,*}")
for shape in "wrn-28-10 5" "wrn-28-10 10" "wrn-28-10 20" "wrn-28-4 10"; do
    # shellcheck disable=SC2086
    ms=$(best $shape)
    echo "$shape: $ms ms per iteration"
    row+=$'\t'$ms
done
[ -s "$log" ] || printf 'date\trevision\tgpu\tdriver\tcudnn\ttests\t%s\t%s\t%s\t%s\n' "wrn-28-10 M=5, ms" \
    "wrn-28-10 M=10, ms" "wrn-28-10 M=20, ms" "wrn-28-4 M=10, ms" >"$log"
echo "$row" >>"$log"
echo "gpu_check: added to $log"
