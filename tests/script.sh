# script.sh - what the longer test scripts begin with, read by them: a folder to work in, and checks that count.
here=$(cd "$(dirname "$0")" && pwd)
jempp=${JEMPP:-$here/../build/jempp}
[ -n "${JEMPP:-}" ] || [ -x "$jempp" ] || jempp=$here/../bin/jempp         # in a bundle
jempp=$(realpath "$jempp")
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export XDG_CACHE_HOME=$tmp/cache        # kernels that one program has timed are those of the next, whoever times beside
passed=0 failed=0 skipped=0

ok()   { echo "ok: $*"; passed=$((passed + 1)); }
bad()  { echo "FAILED: $*"; tail -n 8 out err 2>/dev/null | sed 's/^/    /'; failed=$((failed + 1)); }
# expect CODE WORDS ARG...: the exit code, and words somewhere in what it prints
expect() {
    local code=$1 words=$2
    shift 2
    "$jempp" "$@" >out 2>err </dev/null
    local rc=$?
    [ $rc = "$code" ] || bad "jempp $*: exit code $rc, expected $code"
    grep -qF -e "$words" out err || bad "jempp $*: no '$words'"
}
is_json() {     # is_json ARG...: what the program printed for them
    command -v python3 >/dev/null || return 0
    python3 -m json.tool out >/dev/null 2>err || bad "jempp $*: not JSON"
}
skip() { echo "skipped: $*"; skipped=$((skipped + 1)); }
check() {       # check SENTENCE COMMAND...: the sentence holds if the command succeeds
    local sentence=$1
    shift
    if "$@"; then ok "$sentence"; else bad "$sentence ($*)"; fi
}
