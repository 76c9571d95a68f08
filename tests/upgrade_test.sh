#!/usr/bin/env bash
# upgrade_test.sh - what version 0.1 wrote still works: its run folder reports, evaluates and resumes to
# the numbers that 0.1 itself resumed to; its model opens; its option names are taken. JEMPP is the program.
#
# tests/old/run-0.1.tar.xz was made by 0.1.0 (ef5cc56), from an exported half-precision model so that it
# stays small (prev.safetensors and the pictures of eval were removed):
#   jempp train --data shapes --side 8 --model wrn-10-1 --batch 8 --buffer 10 --train-images 100 \
#       --valid-images 20 --steps 1 --start gaussian --threads 1 --device ref --lr 0 --warmup 0 \
#       --attack linf --attack-radius 8/255 --attack-steps 1 --iterations 24 --seed 3 \
#       --init half.safetensors --out run-0.1
#   jempp eval run-0.1 --tasks acc,attack --limit 20 --attacks pgd-linf --attack-step 0.01
# resumed-0.1.tsv and .txt are the log (without seconds) and the sums of the tensors of its
#   jempp train --resume --iterations 30 --out run-0.1
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"

tar -xf "$here/old/run-0.1.tar.xz" || exit 1

# ---- the run folder
expect 0 'adversarial' info run-0.1
expect 0 'report.html: written' report run-0.1
grep -q 'attack-radius' run-0.1/report.html || bad "the report does not show the options that 0.1 recorded"
expect 0 '"top1"' eval run-0.1 --tasks acc --limit 4 --device ref --json
grep -q '"attack"' out || bad "the results of 0.1's attack task are gone"
expect 0 'samples.png' sample run-0.1 --from buffer --count 10 --out samples.png
expect 0 'run-0.1/samples' predict run-0.1 run-0.1/samples/step-0000024.png --device ref

# ---- the checkpoint: as if 0.1 had gone on
expect 2 'the run has adversarial = linf, found none' train --resume --adversarial none --out run-0.1
expect 0 'run-0.1: 30 steps' train --resume --iterations 30 --out run-0.1
[ "$(wc -l <run-0.1/log.tsv)" = 31 ] || bad "log.tsv does not have each of 30 steps once"
tail -n 6 run-0.1/log.tsv | cut -f 1,2,4- | paste - "$here/old/resumed-0.1.tsv" | awk -F'\t' '
    { for (i = 1; i <= 11; i++) if (($i - $(i + 11)) ^ 2 > 1e-8 * (1 + $i ^ 2)) bad = 1 } END { exit bad || NR != 6 }' ||
    bad "log.tsv after resuming differs from 0.1's: $(tail -n 6 run-0.1/log.tsv)"
if command -v python3 >/dev/null; then
    python3 "$here/old/sums.py" run-0.1/last.safetensors "$here/old/resumed-0.1.txt" >out 2>err ||
        bad "the checkpoint after resuming differs from 0.1's"
fi
grep -q '"adversarial": "linf"' run-0.1/run.json || bad "run.json is not written with today's names"

# ---- it has no mean of climb, which then begins at 1 (from 0 it would be 0.6 at step 100), and no sam_boost
mkdir fresh && tar -C fresh -xf "$here/old/run-0.1.tar.xz"
expect 0 'fresh/run-0.1: 102 steps' train --resume --iterations 102 --climb-limit 0.68 --device cpu --out fresh/run-0.1
grep -q 'rolling back' err && bad "a run of 0.1 counts as one that has lost its density"

# ---- the model
cp run-0.1/best.safetensors old.safetensors
expect 0 'adversarial' info old.safetensors
expect 0 '"class"' predict old.safetensors run-0.1/samples/step-0000024.png --device ref --json
expect 0 'new.safetensors: written' export old.safetensors new.safetensors
expect 0 'adversarial' info new.safetensors

# ---- options that were removed, in the place of another that had no effect
removed() {                     # FILE VALUE: the file of a run with cutout = VALUE
    LC_ALL=C sed -i "s/\\\\npenalty = 0\\\\n/\\\\ncutout  = $2\\\\n/" "$1"
    grep -aq "cutout  = $2" "$1" || bad "$1 has no penalty = 0"
}
cp -r run-0.1 cut
removed cut/last.safetensors 0
expect 0 'cut: 31 steps' train --resume --iterations 31 --device cpu --out cut
removed cut/last.safetensors 8
expect 2 'cutout: no such option' train --resume --iterations 32 --out cut
removed cut/best.safetensors 8
expect 0 'adversarial' info cut/best.safetensors

# ---- names of options
printf 'attack = linf\nattack-radius = 8/255\ndata = shapes\nside = 8\nmodel = wrn-10-1\nbatch = 8\nbuffer = 10\nvalid-images = 20\ntrain-images = 50\nsteps = 1\n' >old.conf
expect 0 'conf: 1 step in' train --config old.conf --iterations 1 --out conf
grep -q '"adversarial": "linf"' conf/run.json || bad "attack in a config file"
expect 0 'flag: 1 step in' train --config old.conf --attack l2 --iterations 1 --out flag
grep -q '"adversarial": "l2"' flag/run.json || bad "--attack"
expect 0 '"classes": 7' info --model wrn-10-1 --classes 7 --json
expect 0 '"step": 0.01' eval conf --tasks attack --attacks pgd-linf --radii 4/255 --limit 4 --attack-step 0.01 --json
[ $failed = 0 ]
