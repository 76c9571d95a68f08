#!/usr/bin/env bash
# user_test.sh - what the program says to someone who gives it the wrong thing: files of another kind, options that
# cannot be, pictures that cannot be read. Each message names what was found, and what to do. JEMPP is the program.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
net="--model wrn-10-1 --stem 4x4 --side 16"
pictures=$here/pictures
expect 0 'run: 12 steps' train $net --data shapes --iterations 12 --batch 16 --steps 2 --px shared --buffer 64 \
    --train-images 200 --valid-images 100 --warmup 5 --threads 1 --out run

# ---- options are checked before pictures are read
mkdir -p slow/a slow/b
for k in a b; do for i in 1 2 3 4 5 6 7 8 9 10; do ln -s "$pictures/cat.png" slow/$k/$i.png; done; done
mkdir -p ten/{disc,square,triangle,ring,star,plus,stripes,checker,gradient,blob}
for d in ten/*; do for i in 1 2 3; do cp "$pictures/cat.png" $d/$i.png; done; done
unread() { ! grep -q 'pictures' err || bad "it read pictures before it said so"; }
expect 2 'side = 7: expected a multiple of 4 up to 256' train --data folder:slow --side 7 --out no && unread
expect 2 'not in tf32' train $net --data folder:slow --device cpu --precision tf32 --out no && unread
[ ! -e no ] || bad "options that cannot be left a folder"
for wrong in '--attacks cw' '--radii 7' '--ood nosuch' '--ood folder:nosuch'; do
    expect 2 "${wrong%% *}: " eval run --data folder:ten --out no $wrong && unread
done
expect 2 'folder:slow: 2 classes; the model has 10' eval run --data folder:slow --out no && unread
[ ! -e no ] || bad "eval that cannot be left a folder"
expect 1 'file/eval.json: ' eval run --data folder:ten --out "$(mkdir -p file/eval.json.tmp; echo file)" && unread
expect 1 'nowhere/x.csv: No such file or directory' predict run folder:ten --out nowhere/x.csv && unread
expect 0 'top-1' eval run --data folder:ten --tasks acc --threads 1 --out ten-eval
grep -q pictures err || bad "this test cannot see when pictures are read"

# ---- info says what a model's file holds
expect 0 'classes          disc, square, ' info run
grep -q '^  weights  *fp32$' out && grep -q '^  trained on  *shapes$' out && grep -q '^  temperature  *' out &&
    grep -q '^  threshold  *' out || bad "info does not say what the file holds"
grep -q '^device = auto$' out || bad "info says another device than the file"
expect 0 '"trained_on": "shapes"' info run --json
is_json info run --json
tr -d ' \n' <out | grep -q '"class_names":\["disc","square",' || bad "info --json: no class names"
for key in threshold temperature weights; do grep -q "\"$key\": " out || bad "info --json: no $key"; done

# ---- the report says what was used, and of every class how it fared
expect 0 'samples' eval run --tasks samples --threads 1 --limit 20 --out sheets
expect 0 'written' report sheets --out page.html
grep -q 'steps of a fresh chain</th><td>[1-9]' page.html || bad "the report has chains of no steps"
awk '/>By class</, /<\/details>/' page.html >by-class
for c in disc square triangle ring cross star diamond checkerboard 'vertical stripes' 'horizontal stripes'; do
    grep -qF "$c" by-class || bad "the report's samples by class omit $c"
done

[ "$failed" = 0 ]
