#!/usr/bin/env bash
# learn_test.sh - a model that learns, samples, travels and answers: training on drawn shapes to well above
# chance in half a minute, then every way to sample, export and predict, without the data too. JEMPP is the
# program; JEMPP_KEEP names a folder that the run is copied to.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
says() {        # says WORDS ARG...: it succeeds, with words somewhere in what it prints
    local words=$1
    shift
    "$jempp" "$@" >out 2>err </dev/null && grep -qF -e "$words" out err
}
png_size() { od -An -j 16 -N 8 -t u1 "$1" | awk '{ print $3 * 256 + $4 "x" $7 * 256 + $8 }'; }
# draws COUNT SIZE OPTION...: that many images in a picture of that size; direct: no timing decides on bits
draws() {
    local count=$1 size=$2 steps="--steps 4"
    shift 2
    case " $* " in *" --from "*) steps= ;; esac
    rm -f grid.png
    # shellcheck disable=SC2086
    says "grid.png: $count images" sample run --conv direct --count 20 $steps --out grid.png "$@" && [ "$(png_size grid.png)" = "$size" ]
}
at_most() { awk -v v="$1" -v most="$2" 'BEGIN { exit !(v != "" && v + 0 <= most) }'; }

# ---- learning; programs that watch themselves are slow, so they only show that it works
steps=120 enough=60 batch=64
case $jempp in */asan/* | */cov/* | */poison/*) steps=12 enough=0 batch=16 ;; esac
check "trains" says "run: $steps steps" train --data shapes --side 28 --stem 4x4 --model wrn-10-1 --steps 5 --px shared --batch $batch \
    --schedule cosine --warmup 40 --buffer 1000 --valid-images 500 --iterations $steps --out run
accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\) %.*/\1/p' out)
check "test accuracy $accuracy %, at least $enough asked, chance is 10" at_most "$enough" "${accuracy:--1}"
gap=$(awk -F'\t' 'NR > 1 { d = $8 - $9; if (d < 0) d = -d; if (d > most) most = d } END { print most }' run/log.tsv)
check "f(x) and f(xq) stay together: at most $gap apart" at_most "$gap" 3
check "an average of weights begins at those it is given" says 'on: 2 steps' train --init run --ema 0.99999 --lr 0 --data shapes \
    --side 28 --stem 4x4 --model wrn-10-1 --steps 1 --buffer 100 --valid-images 500 --iterations 2 --out on
accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\) %.*/\1/p' out)
check "its test accuracy is $accuracy %" at_most "$enough" "${accuracy:--1}"

# ---- samples, of 56 pixels and 2 between them
check "fresh chains" draws 20 292x234
cp grid.png first.png
check "the same again" eval 'draws 20 292x234 && cmp -s grid.png first.png'
check "other chains" eval 'draws 20 292x234 --seed 2 && ! cmp -s grid.png first.png'
check "chain starts" draws 20 292x234 --from starts
check "the buffer" draws 20 292x234 --from buffer
if [ $enough -gt 0 ]; then
    "$jempp" sample run --from buffer --class disc --count 10 --out discs/ >out 2>err
    "$jempp" predict run discs --out discs.csv >out 2>err
    discs=$(cut -d, -f4 discs.csv | grep -c '^disc$')
    check "a class of the buffer: $discs of 10 are predicted so from 8 bits, all before" at_most 9 "$discs"
fi
check "the classes' centres" draws 10 234x176 --from centres
check "the best of many" draws 6 176x118 --count 64 --best 6
cp grid.png best.png
check "the worst of many, which are others" eval 'draws 6 176x118 --count 64 --worst 6 && ! cmp -s grid.png best.png'
check "by p(y|x)" draws 3 118x118 --count 64 --best 3 --by pyx
check "one class, by name" draws 4 118x118 --count 4 --class disc
check "two classes, by number" draws 4 60x234 --count 4 --class 1,3 --columns 1
# asked FOLDER OPTION...: the mean of p(y|x), y being the class from whose Gaussian the chain of an image started
asked() {
    local folder=$1
    shift
    "$jempp" sample run --conv direct --count 60 --out "$folder/" "$@" >out 2>err &&
        "$jempp" predict run "$folder" --out "$folder.csv" >out 2>err &&
        awk -F, 'NR == 1 { for (i = 1; i <= NF && $i !~ /^prob_/; i++); next } { p += $(i + (NR - 2) % 10) } END { print p / (NR - 1) }' "$folder.csv"
}
free=$(asked free) guided=$(asked guided --class all)
check "chains are guided to their class: p(y|x) $free without, $guided with" at_most "$free" "$guided"
check "every class in turn" draws 20 292x234 --class all
check "no such class" eval '! says "" sample run --class sphere && grep -q "sphere: the model.s 10 classes are disc" err'
check "chains as an animation" draws 20 292x234 --animation chains.webp
check "which is one" [ "$(head -c 12 chains.webp | tail -c 4)" = WEBP ]
check "zoomed and in a row" draws 3 260x88 --count 3 --columns 3 --zoom 3

# ---- models to hand on
size() { stat -c %s "$1"; }
check "export" says 'model.safetensors: written' export run model.safetensors
check "export in 16 bits" says 'half.safetensors: written' export run half.safetensors --half
full=$(size model.safetensors) half=$(size half.safetensors)
check "without the folder it was trained into" eval 'grep -aq "out = run" run/best.safetensors && ! grep -aq "out = run" half.safetensors'
check "takes fewer bytes: $half, not $full" [ "$half" -lt $((full - 100000)) ]
check "samples from a lone model" says 'lone.png: 16 images' sample half.safetensors --count 16 --steps 4 --out lone.png
check "which has no buffer" eval '! says "" sample half.safetensors --from buffer && grep -q "has no replay buffer" err'

# ---- answers
"$jempp" predict half.safetensors --json first.png best.png lone.png >out 2>err
check "predict answers for each picture" [ "$(grep -c '"class"' out)" = 3 ]
if command -v python3 >/dev/null; then
    check "in JSON" python3 -c 'import json; a = json.load(open("out")); assert len(a) == 3 and 0 < a[0]["p"] <= 1'
else
    skip "no python3 to read JSON with"
fi
scores() { grep -o '"log_px": [-0-9.e]*' out | cut -d ' ' -f 2; }
scores >with_half
"$jempp" predict run --json first.png best.png lone.png >out 2>err
apart=$(scores | paste - with_half | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { print most }')
check "16 bits move log p(x) by at most $apart" at_most "$apart" 0.1

# ---- a model without its data: pictures become a data set, which then goes away
mkdir -p pictures/few pictures/many
for i in 1 2 3 4 5; do
    cp best.png pictures/few/a$i.png; cp grid.png pictures/few/b$i.png
    cp first.png pictures/many/a$i.png; cp lone.png pictures/many/b$i.png
done
check "trains on a folder of pictures" says 'own: 4 steps' train --data folder:pictures --side 16 --model wrn-10-1 \
    --steps 2 --batch 4 --buffer 40 --iterations 4 --threads 1 --out own
mv pictures gone
export JEMPP_DATA=$tmp/nowhere XDG_DATA_HOME=$tmp/nowhere HOME=$tmp/nowhere
check "export without the data" says 'own.safetensors: written' export own own.safetensors
check "samples without the data, and says from where" \
    says "Gaussians in the model file" sample own.safetensors --count 4 --steps 2 --out own.png --threads 1
check "and writes them" [ "$(png_size own.png)" = 70x70 ]
check "one class without the data" says 'own.png: 3 images' sample own.safetensors --class many --count 3 --steps 2 --out own.png
check "predicts without the data" says 'log p(x)+c' predict own.safetensors own.png gone/few/a1.png
check "as one of the two classes" grep -qE 'own.png +(few|many) ' out
[ -z "${JEMPP_KEEP:-}" ] || cp -r run "$JEMPP_KEEP"

echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ]
