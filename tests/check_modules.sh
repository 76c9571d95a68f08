#!/usr/bin/env bash
# check_modules.sh - a module exports jempp_backend and nothing else, so that two modules and the program
# cannot take each other's functions.
set -u
rc=0
for so in "${JEMPP_MODULE_DIR:-build}"/jempp-*.so; do
    [ -f "$so" ] || continue
    names=$(nm -D --defined-only "$so" | awk '{ print $3 }' | tr '\n' ' ')
    [ "$names" = "jempp_backend " ] || { echo "$so exports: $names" && rc=1; }
done
exit $rc
