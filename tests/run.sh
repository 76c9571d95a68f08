#!/usr/bin/env bash
# run.sh TEST... - runs test programs and scripts, JOBS at a time (one more than there are processors, as some tests
# mostly wait), a line each, and counts: a cmocka program its own tests, a script as one. Of what fails all output is
# shown, and its end once more after the last test. Exits 1 where anything failed. RUNNER is what programs for another processor are run by.
set -u
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}      # spinning threads starve each other on busy machines
# The leak check does not survive thread-local storage of loaded modules that it has watched.
export ASAN_OPTIONS=${ASAN_OPTIONS:-strict_string_checks=1:intercept_tls_get_addr=0}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$(cd "$(dirname "$0")" && pwd)/lsan.txt:print_suppressions=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export work XDG_CACHE_HOME=$work/cache                 # kernels are timed once for all tests, not for the user

one() {         # one TEST: its line, and a line "PASSED FAILED" for the sum
    local t=$1 out rc ms p f s note='' start=$EPOCHREALTIME
    out=$(mktemp "$work/out.XXXXXX")
    count() {   # count WORD: the n of every "[  WORD  ] n test(s)" line
        awk -v word="$1" '$2 == word && $4 ~ /^[0-9]+$/ && $5 ~ /^test/ { n += $4 } END { print n + 0 }' "$out"
    }
    ${RUNNER:-} "$t" >"$out" 2>&1 </dev/null
    rc=$?
    ms=$(( (${EPOCHREALTIME/./} - ${start/./}) / 1000 ))
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    case $t in *.sh) [ $rc$s = 00 ] && p=1 ;; esac
    [ "$s" = 0 ] || note=", $s skipped"
    if [ $rc != 0 ]; then
        [ "$f" != 0 ] || f=1                            # it crashed, or is a script
        note="$note, FAILED (exit code $rc)"
    elif [ "$p$f$s" = 000 ]; then
        f=1 note=", FAILED: it ran no test"
    fi
    echo "$p $f" >>"$work/sums"
    {   printf '%-36s %4d.%03d s  %3d passed%s\n' "${t#build/}" $((ms / 1000)) $((ms % 1000)) "$p" "$note"
        [ "$f" = 0 ] || sed 's/^/    /' "$out"
    } >"$out.said"
    [ "$f" = 0 ] || { head -n 1 "$out.said" && tail -n +2 "$out.said" | grep -A 8 -E 'FAILED|ERROR' | tail -n 40; } >>"$work/failures"
    cat "$out.said"                                     # at once, or lines of two tests would mix
}
export -f one
printf '%s\n' "$@" | xargs -r -P "${JOBS:-$(($(nproc) + 1))}" -I TEST bash -c 'one TEST'
[ ! -s "$work/failures" ] || { echo "What failed:" && cat "$work/failures"; }
awk '{ p += $1; f += $2 } END { print p + 0 " passed, " f + 0 " failed"; exit f > 0 || NR == 0 }' "$work/sums"
