#!/usr/bin/env bash
# check_modules.sh - a module exports its entry (jempp_backend, or jempp_plot) and nothing else, so that two
# modules and the program cannot take each other's functions.
set -u
rc=0
for so in "${JEMPP_MODULE_DIR:-build}"/jempp-*.so; do
    [ -f "$so" ] || continue
    names=$(nm -D --defined-only "$so" | awk '{ print $3 }' | tr '\n' ' ')
    entry=jempp_backend
    case $so in */jempp-plot.so) entry=jempp_plot ;; esac
    [ "$names" = "$entry " ] || { echo "$so exports: $names" && rc=1; }
done
exit $rc
