#!/usr/bin/env bash
# fuzz.sh FUZZER JEMPP SECONDS [READER...] - fuzzes every reader (or those named) for that long, as many at a
# time as there are processors. Inputs begin with small real files and with all that ever went wrong
# (tests/fuzz/READER/); what is learnt stays in build/. What breaks a reader is kept as build/fuzz/found/READER-*.
set -u
here=$(cd "$(dirname "$0")" && pwd)
fuzzer=$(realpath "$1") jempp=$(realpath "$2") seconds=$3
shift 3
work=$(dirname "$fuzzer")
mkdir -p "$work/found"
"$here/fuzz_seeds.sh" "$jempp" "$work/seeds" || exit 1

# A reader may ask for memory that is not there, and must say so: 2 GiB are as good as none.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=2048:detect_leaks=1
export OMP_WAIT_POLICY=passive here fuzzer seconds work
one() {
    local kept=$here/fuzz/$1
    mkdir -p "$work/corpus/$1"
    [ -d "$kept" ] || kept=$work/corpus/$1
    if FUZZ=$1 "$fuzzer" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -malloc_limit_mb=65536 \
        -print_final_stats=1 -artifact_prefix="$work/found/$1-" \
        "$work/corpus/$1" "$work/seeds/$1" "$kept" >"$work/$1.log" 2>&1 </dev/null
    then awk -v name="$1" '/DONE/ { cov = $4 } /number_of_executed/ { runs = $2 } /peak_rss/ { rss = $2 }
             END { printf "ok: %-12s %9d runs, %5d edges, %5d MB\n", name, runs, cov, rss }' "$work/$1.log"
    else echo "FAILED: $1"; grep -v '^#[0-9]*	' "$work/$1.log" | tail -n 40; exit 1
    fi
}
export -f one
{ [ $# -gt 0 ] && printf '%s\n' "$@" || "$fuzzer"; } | xargs -P "$(nproc)" -I READER bash -c 'one READER'
