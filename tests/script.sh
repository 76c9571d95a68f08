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
skip() { echo "skipped: $*"; skipped=$((skipped + 1)); }
check() {       # check SENTENCE COMMAND...: the sentence holds if the command succeeds
    local sentence=$1
    shift
    if "$@"; then ok "$sentence"; else bad "$sentence ($*)"; fi
}
