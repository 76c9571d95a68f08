#!/usr/bin/env bash
# demo.sh [OPTION...] - trains a small model in minutes and shows its samples; options are those of jempp
# train. OUT is the folder, else runs/demo-DATE; JEMPP the program, else build/jempp.
set -eu
cd "$(dirname "$0")/.."
jempp=${JEMPP:-build/jempp}
out=${OUT:-runs/demo-$(date +%Y%m%d-%H%M%S)}
said=$(mktemp) && trap 'rm -f "$said"' EXIT

data=
if ! "$jempp" data check fashion-mnist >/dev/null 2>&1; then
    echo "Fashion-MNIST was not found (Debian package dataset-fashion-mnist); training on synthetic shapes instead"
    data="--data shapes --side 28"
fi
# shellcheck disable=SC2086
"$jempp" train --preset demo $data --out "$out" "$@" | tee "$said"

# The same chains before and after, one column per class: a sample has the position of its start.
"$jempp" sample "$out" --from starts --count 100 --columns 10 --no-preview --out "$out/samples/starts.png"
"$jempp" sample "$out" --count 100 --columns 10 --out "$out/samples/samples.png" \
    --animation "$out/samples/chains.webp"

found() { sed -n "s/.*$1.*/\\1/p" "$said" | head -n 1; }
echo "demo: test accuracy $(found 'test accuracy \([0-9.]*\) %') %, ECE $(found 'calibration error \([0-9.]*\) %') %," \
    "$(found 'steps in \([0-9]*\) s') s, samples in $out/samples/samples.png"
