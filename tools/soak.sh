#!/usr/bin/env bash
# soak.sh - trains `shapes` for MINUTES (30) with a checkpoint every 5 s and watches the process each second:
# resident memory must stay flat to 1 %, and open descriptors must not grow. JEMPP is the program.
#
# What counts is the least of each tenth of the run from the second on: a checkpoint takes memory for a
# moment, a leak lifts the floor.
set -u
cd "$(dirname "$0")/.." || exit 1
minutes=${MINUTES:-30}
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT

nice "${JEMPP:-build/jempp}" train --data shapes --side 16 --model wrn-10-1 --batch 32 --buffer 1000 --steps 5 \
    --train-images 2000 --lr 1e-5 --gap-limit 0 --threads "${THREADS:-1}" --minutes "$minutes" \
    --checkpoint-minutes 1/12 --out "$tmp/run" >"$tmp/out" 2>&1 </dev/null &
pid=$!
while sleep 1 && [ -e /proc/$pid/statm ]; do
    read -r _ pages _ <"/proc/$pid/statm" || break
    files=("/proc/$pid/fd/"*)
    [ "${pages:-0}" = 0 ] || echo "$((pages * $(getconf PAGESIZE) / 1024)) ${#files[@]}"
done 2>/dev/null >"$tmp/seen"
wait $pid || { tail "$tmp/out" && exit 1; }
tail -n 3 "$tmp/out"

awk '
    { kib[NR] = $1; fds[NR] = $2 }
    END {
        if (NR < 20) { print "too short to tell"; exit 1 }
        for (i = 1; i <= NR; i++) {
            t = int((i - 1) * 10 / NR)
            if (!(t in low) || kib[i] < low[t]) low[t] = kib[i]
            if (!(t in few) || fds[i] < few[t]) few[t] = fds[i]
            if (kib[i] > peak) peak = kib[i]
        }
        least = most = low[1]
        for (t = 1; t < 10; t++) {
            if (low[t] < least) least = low[t]
            if (low[t] > most) most = low[t]
            line = line " " low[t] "/" few[t]
        }
        printf "KiB/descriptors, tenth by tenth:%s; peak %d KiB\n", line, peak
        growth = 100 * (most - least) / least
        printf "resident memory within %.2f %% (limit 1), descriptors %+d (limit 0), %d s\n",
               growth, few[9] - few[1], NR
        exit growth > 1 || few[9] > few[1]
    }' "$tmp/seen"
