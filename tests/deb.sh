#!/usr/bin/env bash
# deb.sh - the packages of `make deb` in use: installs them on this system (as root), uses program and library as
# users do, purges them, and looks for what is left. Not one of CI's tests: it changes the system.
set -eu
debs=$(cd "$(dirname "$0")/../build/deb" && ls "$PWD"/*.deb)
example=$(cd "$(dirname "$0")/../docs" && pwd)/example.c
if command -v jempp; then echo "jempp is installed already" && exit 1; fi
tmp=$(mktemp -d)
names=$(for d in $debs; do dpkg-deb -f "$d" Package; done)
# shellcheck disable=SC2086
away() { DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq $names >/dev/null 2>&1; }
trap 'away || true; rm -rf "$tmp"' EXIT                  # apt knows nothing of what is gone already
bad() { echo "FAILED: $*" && exit 1; }
unset JEMPP_MODULE_DIR
cd "$tmp"

# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debs >log 2>&1 || { cat log && exit 1; }
for name in $names; do dpkg -L "$name"; done | sort -u >files

jempp --version | tee version
grep -q '^cpu .*oneDNN' version || bad "the cpu module was not found"
if grep -q jempp-cuda <<<"$names" && grep -q 'jempp-cuda.so is neither' version; then bad "the cuda module was not found"; fi
man -w jempp >/dev/null || bad "no man page"
jempp info --model wrn-10-1 | head -n 3
jempp train --data shapes --side 8 --model wrn-10-1 --batch 10 --buffer 40 --train-images 200 --valid-images 40 \
    --steps 2 --iterations 2 --threads 1 --out run 2>/dev/null
jempp sample run --count 4 --steps 2 --no-preview --out four.png 2>/dev/null
jempp predict run four.png
# shellcheck disable=SC2046
cc "$example" $(pkg-config --cflags --libs jempp) -o example
./example run four.png again.png

away
for name in $names; do
    if dpkg -s "$name" >/dev/null 2>&1; then bad "$name is still installed"; fi
done
while read -r file; do
    if [ -e "$file" ] && [ ! -d "$file" ] || [[ -d $file && $file == *jempp* ]]; then bad "left: $file"; fi
done <files
echo "1 passed, 0 failed"
