#!/usr/bin/env bash
# soak.sh - trains `shapes` with a checkpoint every 5 s and watches the process each second for MINUTES (30):
# resident memory must stay flat to 1 %, and open descriptors must not grow. JEMPP is the program.
#
# Watching begins when everything has happened once (an epoch's evaluation, two checkpoints), however long
# a busy machine takes over that. What counts is the least of each tenth: a checkpoint takes memory for a
# moment, a leak lifts the floor.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=$(awk "BEGIN { print int(60 * ${MINUTES:-30}) }")
tmp=$(mktemp -d) || exit 1

nice "${JEMPP:-build/jempp}" train --data shapes --side 16 --model wrn-10-1 --batch 32 --buffer 1000 --steps 5 \
    --train-images 2000 --lr 1e-5 --gap-limit 0 --threads "${THREADS:-1}" --epochs 100000 \
    --checkpoint-minutes 1/12 --out "$tmp/run" >"$tmp/out" 2>&1 </dev/null &
pid=$!
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
running() { read -r _ pages _ 2>/dev/null <"/proc/$pid/statm" && [ "$pages" != 0 ]; }
ended_early() { { echo "the training ended before its time:" && cat "$tmp/out"; } >&2; exit 1; }

until [ -e "$tmp/run/best.safetensors" ] && [ -e "$tmp/run/prev.safetensors" ]; do
    running || ended_early
    sleep 1
done
for ((i = 0; i < seconds; i++)); do
    running || ended_early
    files=("/proc/$pid/fd/"*)
    echo "$((pages * $(getconf PAGESIZE) / 1024)) ${#files[@]}"
    sleep 1
done >"$tmp/seen"
kill "$pid"
wait "$pid"
[ $? = 143 ] || ended_early                 # SIGTERM saves and stops
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
        least = most = low[0]
        for (t = 0; t < 10; t++) {
            if (low[t] < least) least = low[t]
            if (low[t] > most) most = low[t]
            line = line " " low[t] "/" few[t]
        }
        printf "KiB/descriptors, tenth by tenth:%s; peak %d KiB\n", line, peak
        growth = 100 * (most - least) / least
        printf "resident memory within %.2f %% (limit 1), descriptors %+d (limit 0), %d s\n",
               growth, few[9] - few[0], NR
        exit growth > 1 || few[9] > few[0]
    }' "$tmp/seen"
