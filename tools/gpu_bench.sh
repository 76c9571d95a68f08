#!/usr/bin/env bash
# gpu_bench.sh PEER.py [JEMPP] - our whole training iterations against a peer's, on this machine's GPU.
#
# PEER.py takes --bench N --depth D --width W --M M and prints "... X ms/iteration ...". The two run in
# turn, ROUNDS times, and of each the least counts. The last lines are "ratio ... R": the peer's time
# over ours.
set -eu
peer=${1:?usage: gpu_bench.sh PEER.py [JEMPP]}
here=$(cd "$(dirname "$0")/.." && pwd)
jempp=${2:-$here/build/jempp}
rounds=${ROUNDS:-2} n=${ITERATIONS:-20}
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT

ours() {        # ours DEPTH WIDTH M
    "$jempp" bench --device cuda --model "wrn-$1-$2" --batch 64 --steps "$3" --px shared --iterations "$n" --json \
        >"$tmp/ours" 2>"$tmp/err" || { cat "$tmp/err" >&2 && return 1; }
    sed -n 's/.*"iteration_ms": *\([0-9.]*\).*/\1/p' "$tmp/ours"
}
theirs() {
    (cd "$tmp" && "${PYTHON:-python3}" "$peer" --bench "$n" --depth "$1" --width "$2" --M "$3" --batch 64) >"$tmp/theirs" 2>&1 ||
        { cat "$tmp/theirs" >&2 && return 1; }
    sed -n 's/.* \([0-9.]*\) ms\/iteration.*/\1/p' "$tmp/theirs"
}
less() { awk -v a="$1" -v b="$2" 'BEGIN { print (a == "" || b + 0 < a + 0) ? b : a }'; }

case $peer in /*) ;; *) peer=$PWD/$peer ;; esac
: >"$tmp/ratios"
printf '%-12s %4s %12s %12s %8s\n' model M 'ours, ms' 'peer, ms' ratio
for shape in "28 10 5" "28 10 10" "28 10 20" "28 4 10"; do
    read -r depth width m <<<"$shape"
    a='' b=''
    for _ in $(seq "$rounds"); do
        a=$(less "$a" "$(ours "$depth" "$width" "$m")")
        b=$(less "$b" "$(theirs "$depth" "$width" "$m")")
    done
    r=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", b / a }')
    printf '%-12s %4s %12.2f %12.2f %8s\n' "wrn-$depth-$width" "$m" "$a" "$b" "$r"
    if [ "$width" = 10 ]; then echo "ratio M=$m $r"; else echo "ratio wrn-$depth-$width M=$m $r"; fi >>"$tmp/ratios"
done
cat "$tmp/ratios"
