#!/usr/bin/env bash
# check_modules.sh - a module exports its entry (jempp_backend, jempp_plot or jempp_http) and nothing else, so that two
# modules and the program cannot take each other's functions.
set -u
rc=0
for so in "${JEMPP_MODULE_DIR:-build}"/jempp-*.so; do
    [ -f "$so" ] || continue
    names=$(nm -D --defined-only "$so" | awk '{ print $3 }' | tr '\n' ' ')
    entry=jempp_backend
    case $so in */jempp-plot.so) entry=jempp_plot ;; */jempp-serve.so) entry=jempp_http ;; */jempp-mpi.so) entry=jempp_comm ;; esac
    [ "$names" = "$entry " ] || { echo "$so exports: $names" && rc=1; }
done

# A module that was built with another Dev is another version's: the number that it is asked for must differ.
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/dev" && sed 's/^    int     threads;/    double  more; int threads;/' "$here/../src/dev/backend.h" >"$tmp/dev/backend.h"
abi() {         # abi FOLDER: BACKEND_ABI by its dev/backend.h
    echo '#include "dev/backend.h"
    int abi = BACKEND_ABI;' | ${CC:-cc} -I"$1" -I"$here/../src" -S -x c - -o - | awk '$1 == ".long" { print $2 }'
}
ours=$(abi "$here/../src") other=$(abi "$tmp")
[ -n "$ours" ] && [ "$ours" != "$other" ] || { echo "BACKEND_ABI is $ours, with another Dev '$other'" && rc=1; }
exit $rc
