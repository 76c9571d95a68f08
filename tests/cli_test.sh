#!/usr/bin/env bash
# cli_test.sh - the program as a user meets it: help, exit codes, messages, info, bench, and a tiny model
# from training to prediction. JEMPP is the program.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"

# wait_for FILE PID: until the program has written it, however busy the machine, or has ended
wait_for() {
    for _ in $(seq 3000); do
        [ ! -e "$1" ] && kill -0 "$2" 2>/dev/null || return 0
        sleep 0.1
    done
}

# ---- help: every command that is listed has one, and nothing else does
expect 0 'Commands:' --help
expect 0 'Commands:' help
commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' out)
[ "$(echo $commands)" = "train sample eval predict export info bench report serve fid data" ] || bad "commands: $commands"
for c in $commands; do
    expect 0 "jempp $c - " "$c" --help
    grep -q '^Usage:' out && grep -q '^Examples:' out && grep -q '^Options, ' out || bad "jempp $c --help"
    expect 2 '--frobnicate: no such option' "$c" --frobnicate
    expect 0 "jempp $c - " help "$c"
done
expect 0 "jempp $(sed -n 's/^#define JEMPP_VERSION "\(.*\)".*/\1/p' "$here/../include/jempp.h")" --version
for device in cuda cpu ref; do grep -q "^$device  *[^ ]" out || bad "--version has no line for $device"; done

# ---- what a user gets wrong
expect 2 'expected a command'
expect 2 'frobnicate: no such command' frobnicate
expect 2 'frobnicate: no such command; jempp --help lists them' help frobnicate
expect 2 'trian: no such command; did you mean train?' trian --steps 5
expect 2 'smaple: no such command; did you mean sample?' help smaple
expect 2 'did you mean --steps?' train --stpes 5
expect 2 '--steps: expected a value after it' train --steps
expect 2 "--steps: found 'x', expected a whole number" train --steps x
expect 2 "--steps: found 'x', expected a whole number" train --steps=x
expect 2 '--zoom: not an option of jempp train; it is for sample' train --zoom 2
expect 2 '-x: no such option' train -x
expect 2 'did you mean jempp-m10?' train --preset jempp-m1O
expect 2 'train: stray: one name too many; expected options only' train stray
expect 2 'expected --out RUN too' train --resume
expect 2 'sample: expected one run folder or model file' sample
expect 2 'predict: expected a run folder or model file, then one or more pictures, folders, npz files or image sets' predict one
grep -qF "found 'one' alone" err || bad "it does not say what was found"
expect 2 'the file to write' export one
expect 2 'bench: stray: one name too many; expected options only' bench stray
expect 2 'expected one run folder' report
expect 1 'nosuch: no such run folder' report nosuch
expect 2 'expected list, check NAME or fetch NAME' data
expect 1 'nosuch.conf' train --config nosuch.conf
expect 1 'cifar10.png: is a PNG picture, expected lines of the form option = value' train --config "$here/../docs/cifar10.png"
head -c 99 /dev/zero >zero.conf
expect 1 'zero.conf: is a binary file, expected lines of the form option = value' train --config zero.conf
expect 1 '.: is a folder, expected lines of the form option = value' train --config .
printf '\357\273\277steps = 3\r\nlr = x\r\n' >windows.conf       # with a byte-order mark
expect 2 "windows.conf, line 2: lr: found 'x', expected a number" train --config windows.conf
printf '= 3\n' >nameless.conf
expect 2 "nameless.conf, line 1: found '= 3', expected option = value" train --config nameless.conf
printf 'steps = 3\nsteps = 4\n' >twice.conf
expect 2 'twice.conf, line 2: steps: already given on line 1' train --config twice.conf
expect 2 'model ' info --model resnet-50
expect 1 'nosuch' info nosuch

# ---- a preset lies below a file, a file below flags, wherever they stand
printf 'model = wrn-16-2\nbatch = 8\n' >small.conf
expect 2 'batch = 1' train --batch 1 --config small.conf --preset demo
expect 2 'buffer = 4: a batch takes 8' train --buffer=4 --config small.conf --preset demo

# ---- the network on paper
expect 0 '36.49 M parameters, 5.95 GMAC per image' info --model wrn-28-10
expect 0 '55 ops' info
expect 0 'no normalisation' info --model wrn-10-1 --norm none
expect 0 '"parameters": 36489290' info --json
is_json info --json
expect 0 'packed weights' info --model wrn-10-1 --batch 2 --device ref
expect 0 'batch 20000' info --model wrn-10-1 --batch 20000       # more than the default --buffer, which info does not have
expect 2 '1 class: expected 2 to 1000' info --num-classes 1
expect 2 '--ranks 2: expected 1 or 0; mpirun -n 2 jempp bench measures several' bench --ranks 2
expect 2 '--ranks 1: measures NCCL on a GPU, found the device ref' bench --ranks 1 --device ref --model wrn-10-1
expect 0 'shapes' data list
expect 2 'data list x: expected list, check NAME or fetch NAME' data list x
expect 0 '"name": "shapes"' data list --json
is_json data list --json
expect 0 'shapes: 5000 training images, 3 x 16 x 16, 10 classes of 500; drawn in memory' data check shapes --side 16
expect 2 '--json: only for data list' data check shapes --json
expect 2 'zero.conf: is a file of an unknown kind, expected a folder of pictures' data check folder:zero.conf
expect 2 '--data-dir nowhere: no such folder' data check mnist --data-dir nowhere

mkdir no-curl && : >no-curl/libcurl.so.4
LD_LIBRARY_PATH=no-curl expect 1 'fetching needs libcurl: ' data fetch mnist --data-dir fetched
[ ! -e fetched ] || bad "a download that failed left a folder"
expect 1 'http' data fetch mnist --data-dir fetched --url http://127.0.0.1:9/none
[ ! -e fetched ] || bad "a download that failed left a folder"

# ---- a tiny model all the way
net="--model wrn-10-1 --stem 4x4 --side 16"
expect 0 'whole iteration, M = 1, px shared' bench $net --batch 2 --steps 1 --iterations 2 --threads 1
expect 0 '"sam": 2,' bench $net --batch 2 --steps 1 --iterations 2 --threads 1 --sam 2 --json
grep -qF '"iteration_ms": ' out || bad "bench --json: no iteration_ms"
grep -qF '"labelled": 2,' out || bad "bench --json: labelled is not the batch"
is_json bench --json
expect 0 'wrn-10-1, 1x28x28 images, 10 classes, batch 2;' bench --preset demo --batch 2 --steps 1 --iterations 1 --threads 1
expect 0 'wrn-10-1, 3x8x8 images, 10 classes, batch 2;' bench --preset demo --batch 2 --steps 1 --iterations 1 --threads 1 \
    --side 8 --channels 3
expect 0 'images per call' bench $net --inference --threads 1
expect 0 '"images_per_second": ' bench $net --inference --threads 1 --json
is_json bench --inference --json
expect 0 'run: 12 steps' train $net --data shapes --iterations 12 --batch 16 --steps 2 --px shared --buffer 64 \
    --train-images 200 --valid-images 100 --warmup 5 --threads 1 --out run
expect 0 '3x16x16 images' info run
expect 0 'training options' info run
expect 0 '"options"' info run --json
is_json info run --json
expect 0 'grid.png: 3 images' sample run --count 3 --steps 2 --out grid.png --no-preview --threads 1
[ "$(head -c 4 grid.png | tail -c 3)" = PNG ] || bad "grid.png is no PNG"
expect 0 'samples.png: 10 images' sample run --from centres
expect 0 'log p(x)+c' predict run grid.png
expect 1 'nosuch.png' predict run grid.png nosuch.png
grep -q '^grid.png ' out || bad "a picture that is there was not answered"
expect 1 'grid.png: is a PNG picture, expected a model' train --data shapes --init grid.png --out noinit
[ ! -e noinit ] || bad "train --init with a picture left a folder"
expect 1 'no checkpoint to resume from' train --resume --out "$(mkdir mine; touch mine/a; echo mine)"
[ "$(ls mine)" = a ] || bad "train --resume changed a folder that is no run"
expect 2 "--init run: it has 10 classes (disc, square, triangle, ring, ...), the data has 2 (a, b): expected data with the same" \
    train $net --data "folder:$(mkdir -p ab/a ab/b; cp grid.png ab/a/1.png; cp grid.png ab/b/1.png; echo ab)" --init run \
    --batch 2 --out noinit
expect 2 "--init run: another network than this run's (wrn-10-2, stem 3x3, norm none): expected --model wrn-10-1 --stem 4x4 --norm batch" \
    train --data shapes --side 16 --model wrn-10-2 --norm none --init run --out noinit
expect 2 '--init run: it is for colour images, the data is grey' train $net --data folder:ab --channels 1 --init run --out noinit
[ ! -e noinit ] || bad "train --init with a model that does not fit left a folder"
wide=x$(printf 'ö%.0s' {1..30})                  # whose 40th byte is within a character
mkdir -p wide/a$wide wide/$wide && for d in wide/*; do cp grid.png $d/1.png; done
expect 2 'the data has 2 (a' train $net --data folder:wide --init run --batch 2 --out noinit
iconv -f UTF-8 -t UTF-8 err >/dev/null || bad "a list of names is cut within a character"
mkdir tens tens/a{0..9} && for d in tens/*; do for i in 1 2 3; do cp grid.png $d/$i.png; done; done
expect 0 'its classes (disc, square, triangle, ring, ...) are not' train $net --data folder:tens --init run --px none \
    --batch 2 --iterations 1 --threads 1 --out tens-run
long=$(printf 'n%.0s' {1..200})
mkdir -p long/a$long long/b$long && for d in long/*; do for i in 1 2 3; do cp grid.png $d/$i.png; done; done
expect 0 '1 step in' train $net --data folder:long --px none --batch 2 --iterations 1 --threads 1 --out long-run
expect 0 'nnn...nnn' predict long-run grid.png
[ "$(wc -L <out)" -lt 100 ] || bad "a long class name makes the table of predict wide"
expect 0 'nnn...nnn' info long-run
[ "$(grep -o '.*nn.*' out | wc -L)" -le 96 ] || bad "a long class name makes the table of info wide"
for out in --json '--out long.csv'; do
    expect 0 '' predict long-run grid.png $out --force
    cat out long.csv 2>/dev/null | grep -q "[ab]$long" || bad "predict $out cuts a class name"
done
mkdir -p $'lines/a\nb' lines/c && cp grid.png $'lines/a\nb/1.png' && cp grid.png lines/c/1.png
expect 1 'class 0 has a line break in its name' data check folder:lines
mkdir pics && cp grid.png pics/a.png && echo no >pics/b.png
expect 1 'b.png: 3 bytes, expected a PNG' predict run pics grid.png
grep -q '^pics/a.png ' out && grep -q '^grid.png ' out || bad "predict of a folder"
expect 0 'shapes:test[999]' predict run shapes:test
expect 1 'pics/c.png: no such file or folder' predict run pics/c.png
expect 0 '"log_px": ' predict run grid.png --json
is_json predict --json
expect 1 '"error": "pics/b.png: 3 bytes, expected a PNG' predict run pics nosuch.png --json
[ "$(grep -c '"file": ' out)" = 3 ] && [ "$(grep -c '"class": ' out)" = 1 ] || bad "predict --json: not one element per name"
grep -q '"file": "nosuch.png",' out && grep -q '^jempp: nosuch.png: no such file' err || bad "a name that is nothing"
is_json predict --json with errors
expect 0 'run/report.html: written' report run
[ ! -e "$(dirname "$jempp")/jempp-plot.so" ] || [ "$(head -c 4 run/curves.png | tail -c 3)" = PNG ] || bad "no curves.png"
expect 0 'page.html: written' report run --out page.html
expect 0 'page.html: written' report run --out page.html
expect 2 'expected a name that ends in .html' report run --out run/best.safetensors
cp grid.png picture.html
expect 2 'picture.html: exists and is not an HTML page; --force overwrites it' report run --out picture.html
expect 0 'picture.html: written' report run --out picture.html --force
expect 0 'model.safetensors: written' export run model.safetensors --half
expect 0 'grid.png' predict model.safetensors grid.png
"$jempp" predict model.safetensors - <grid.png >out 2>err || bad "a picture from standard input: exit code $?"
grep -q '^- ' out || bad "a picture from standard input was not answered"
head -c 100 grid.png | "$jempp" predict model.safetensors - >out 2>err
[ $? = 1 ] && grep -q 'standard input: not a valid PNG' err || bad "half a picture from standard input"
mkdir -p klassen && cp grid.png klassen/北京.png && cp grid.png klassen/größe.png
expect 0 'größe' predict model.safetensors klassen/*.png
columns() { python3 -c 'import sys, unicodedata as u
print(sum(2 if u.east_asian_width(c) == "W" else 1 for c in sys.argv[1]))' "$1"; }
if command -v python3 >/dev/null; then
    widths=$(sed 's/  [0-9.]*  *-*[0-9.]*  [a-z?]*$//' out | tail -n +2 | while IFS= read -r l; do columns "$l"; done | sort -u)
    [ "$(echo "$widths" | wc -l)" = 1 ] || bad "columns of wide characters do not align: $widths"
fi

# ---- a folder's problems are found at once, not one by one
mkdir -p "all bad/a" "all bad/b" "all bad/none" && cp grid.png "all bad/b/1.png" && cp grid.png "all bad/b/2.png"
for i in $(seq 21); do echo no >"all bad/a/$i.png"; done
expect 1 'folder:all bad: 1 class without a picture, 21 of 23 pictures cannot be used: ' data check 'folder:all bad'
[ "$(grep -c ': 3 bytes, expected a PNG' err)" = 19 ] && grep -qF '... and 2 more' err &&
    grep -qF 'all bad/none: no PNG, JPEG or WebP picture' err || bad "not the first 20 problems"
rmdir "all bad/none"
expect 1 "jempp data check 'folder:$PWD/all bad' lists all such pictures" train --data 'folder:all bad' --out norun
mkdir alone && cp -r "all bad/b" alone
expect 1 "folder:$PWD/alone: 1 class ('b'), expected at least 2" train --data folder:alone --batch 1 --norm none --out norun
mkdir -p scarce/{a,b,c,d,e,f} && for d in scarce/*; do cp grid.png $d/1.png; done && cp grid.png scarce/a/2.png
expect 1 "has no image left to train on, of 1: expected more of them, fewer --valid-images, or --start gaussian" \
    train $net --data folder:scarce --batch 2 --buffer 4 --threads 1 --out norun
expect 1 'alone/b: 2 pictures but no subfolder, expected one per class' data check folder:alone/b

# ---- an own folder of pictures, from anywhere
for k in a b; do for h in train test; do
    mkdir -p own/$h/$k
    for i in 1 2 3 4 5 6 7 8 9 10; do cp grid.png own/$h/$k/$i.png; done
done; done
expect 2 "--valid-images 9: folder:$PWD/own has 20 training images, of which at most a fifth (4) can be held out" \
    train $net --data folder:own --valid-images 9 --out held-out
expect 2 "--train-images 17: folder:$PWD/own has 20 training images, of which 16 are left after 4 for validation" \
    train $net --data folder:own --train-images 17 --out held-out
expect 0 '16 training, 4 validation' train $net --data folder:own --preset demo --iterations 1 --batch 4 --px none --threads 1 \
    --out as-preset                             # which says train-images = 20000
expect 2 '--side 16: the images of cifar-file:' train --data "cifar-file:$(head -c 30730 /dev/zero >zero.bin; echo zero.bin)" \
    --side 16 --out held-out
expect 2 '--channels 1: the images of shapes have 3; --channels is for folder:' train $net --data shapes --channels 1 --out held-out
expect 2 'own: a folder; expected folder:own' train --data own --out held-out
expect 0 'own-run: 2 steps' train $net --data folder:own --iterations 2 --batch 4 --px none --valid-images 4 --threads 1 --out own-run
grep -qF "\"folder:$PWD/own\"" own-run/run.json || bad "the run does not store the absolute path"
mkdir elsewhere
(cd elsewhere && "$jempp" eval ../own-run --tasks acc --threads 1 >../out 2>../err) || bad "eval from another folder: exit code $?"
expect 0 'written' export own-run own-model.safetensors
! grep -aqF "$PWD" own-model.safetensors || bad "an exported model has a path of this machine"
expect 2 '--data' eval own-model.safetensors --tasks acc
expect 1 'elsewhere: a folder, but not of a run (no run.json in it)' predict elsewhere grid.png

# ---- what is not of the same kind is never overwritten; the suffix decides the format
cp model.safetensors kept.safetensors
cp grid.png kept.png
expect 0 'active: 20 steps' train $net --data shapes --active 8 --reinit 0.25 --iterations 20 --batch 4 --buffer 12 --valid-images 4 --threads 1 --out active
expect 0 'samples.png: 12 images' sample active --from buffer --count 12
expect 2 '--weight-noise without fresh chains: expected --from fresh' sample run --from buffer --weight-noise 0.3
expect 2 '--chain-length without fresh chains: expected --from fresh' sample run --from buffer --chain-length 10
expect 2 '--steps and --chain-length: expected one of them' sample run --steps 4 --chain-length 10
expect 2 '--steps and --chain-step: expected one of them' eval run --tasks samples --steps 4 --chain-step 2
expect 2 '--chain-length, --chain-step: not for .onnx, without chains' export run far.onnx --chain-length 10
expect 2 'active = 100 without chains: expected px other than none' train --px none --active 100 --data shapes --out none
expect 0 'far.safetensors: written' export run far.safetensors --chain-length 12.5
expect 0 'fresh chains     12.5 chain steps of training' info far.safetensors
expect 0 'chains of 10 steps, from 2.4 to 0.1 times' sample far.safetensors --chain-step 2.4 --count 1 --out far.png
expect 0 'chains of 7 steps' sample far.safetensors --chain-step 2.4 --class disc --count 1 --out far.png
expect 0 'chains of 12 steps' sample far.safetensors --chain-step 2.4 --class disc --chain-length 15 --count 1 --out far.png
expect 2 'kept.safetensors: expected a name that ends in .png or .webp' sample run --from centres --out kept.safetensors
expect 2 'a.jpg: expected a name that ends in .png or .webp' sample run --from centres --out a.jpg
expect 2 'm.bin: expected a name that ends in .safetensors, .pt, .pth or .onnx' export run m.bin
cp model.safetensors liar.png
expect 2 'liar.png: exists and is not a PNG file; --force overwrites it' sample run --from centres --out liar.png
cmp -s liar.png kept.safetensors || bad "a model was overwritten"
expect 0 'liar.png: 10 images' sample run --from centres --out liar.png --force
expect 0 'liar.png: 10 images' sample run --from centres --out liar.png
expect 2 'kept.safetensors: expected a name that ends in .webp' sample run --count 1 --steps 1 --animation kept.safetensors
expect 0 'one/: 10 images' sample run --from centres --out one/
[ "$(ls one | tr '\n' ' ')" = "$(printf '%06d.png ' {0..9})" ] || bad "single images are $(ls one)"
expect 0 'all.npz: 10 images' sample run --from centres --out all.npz
expect 0 'all.npz: 10 images' sample run --from centres --out all.npz
expect 0 'all.npz[9]  ' predict run all.npz
expect 0 'mixed.csv: 12 images' predict run grid.png all.npz grid.png --out mixed.csv
[ "$(cut -d, -f1,2 mixed.csv | tr '\n' ' ' | cut -d' ' -f3-5)" = ",0 ,1 ,2" ] || bad "predict: rows of an npz file"
cifar=$here/../models/cifar10-wrn-16-4.safetensors
expect 1 'all.npz: colour images of 16 x 16, the model takes colour images of 32 x 32' predict "$cifar" all.npz
expect 2 'all.npz: colour images of 16 x 16, the model takes colour images of 32 x 32' predict "$cifar" all.npz --out x.csv
expect 2 '--side: the network is that of run; leave it out' info run --side 8
expect 2 '--out x.html: for the page; --tensorboard writes to the run folder' report run --tensorboard --out x.html
expect 2 '--json and --out: expected one of them; --out FILE.jsonl writes JSON' predict run grid.png --json --out x.csv
printf x >a.byte
expect 1 'a.byte: 1 byte, expected a PNG, JPEG or WebP file' predict run a.byte
cp grid.png liar.npz
expect 1 'liar.npz: ' predict run grid.png liar.npz
grep -q '^grid.png ' out || bad "a bad npz file keeps the others from being classified"
for out in nowhere/x.png nowhere/x.npz; do
    expect 1 "$out: No such file or directory" sample run --count 64 --steps 20 --out $out
    ! grep -q '/64 images' err || bad "sample drew before it looked where to write: $out"
done
cp grid.png "$(printf 'an\033[31modd\n\302\233name.png')"
expect 0 'an?[31modd???name.png  ' predict run an*name.png
expect 2 'liar.npz: exists and is not an npz file' sample run --from centres --out liar.npz
if python3 -c 'import numpy' 2>/dev/null; then
    python3 -c 'import numpy as np; a = np.load("all.npz")["arr_0"]
assert a.dtype == np.uint8 and a.ndim == 4 and a.shape[0] == 10 and a.shape[3] in (1, 3), (a.dtype, a.shape)' ||
        bad "NumPy does not read what was written"
fi
expect 0 'classes.npz: 4 images' sample run --class all --count 4 --steps 1 --out classes.npz
if python3 -c 'import numpy' 2>/dev/null; then
    python3 -c 'import numpy as np; a, b = np.load("classes.npz"), np.load("all.npz")
assert a["arr_1"].dtype == np.int64 and sorted(a["arr_1"]) == [0, 1, 2, 3], a["arr_1"]
assert b.files == ["arr_0"], b.files' || bad "labels of samples by class"
fi
expect 2 'one, 10 pictures: no labels; image sets have them' fid one classes.npz --per-class --device cpu --inception model.safetensors
expect 2 'fid: expected images and their reference' fid
expect 2 "found 'one' alone" fid one
expect 1 'jempp data fetch inception' fid one all.npz --device cpu
expect 2 '--side 64: it is for folder:DIR and shapes, found one and cifar10' fid one cifar10 --side 64
expect 1 'jempp data fetch inception' fid one shapes --side 64 --device cpu
expect 1 'jempp data fetch inception' eval run --tasks fid
expect 1 'jempp data fetch inception' train --data shapes --fid-every 1 --out norun
expect 0 'still.webp: 10 images' sample run --from centres --out still.webp
[ "$(head -c 12 still.webp | tail -c 4)" = WEBP ] || bad "still.webp is no WebP"
cp run/best.safetensors best.copy
expect 2 'run/best.safetensors: is the model that is exported' export run run/best.safetensors
expect 2 'run/last.safetensors: exists and is not a model alone' export run run/last.safetensors
expect 2 'model.safetensors: is the model that is exported' export model.safetensors ./model.safetensors
cp grid.png odd.safetensors
expect 2 'odd.safetensors: exists and is not a model' export run odd.safetensors
cmp -s run/best.safetensors best.copy && cmp -s model.safetensors kept.safetensors && cmp -s odd.safetensors kept.png ||
    bad "export changed what it refused to replace"
expect 0 'kept.safetensors: written' export run kept.safetensors --half
expect 0 'odd.safetensors: written' export run odd.safetensors --half --force

# ---- PyTorch's files
"$jempp" predict run grid.png >direct
expect 0 'model.pt: written' export run model.pt
expect 0 'grid.png' predict model.pt grid.png
cmp -s out direct || bad "a model exported to PyTorch's format answers otherwise"
expect 0 'again.safetensors: written' export model.pt again.safetensors
expect 0 'model.pt: written' export run model.pt
cp "$here/torch/zip-27.pt" others.pt
expect 2 "others.pt: exists and is not a model that jempp wrote" export run others.pt
expect 1 "only tensors and plain containers are read" predict "$here/torch/hostile.pt" grid.png
expect 1 "no tensor 'f.conv1.weight'" predict "$here/torch/zip-27.pt" grid.png

# ---- what a model is worth: the whole of it, then parts that leave the rest alone
quick="--limit 40 --threads 1 --attack-steps 2"
expect 0 'robust accuracy, 40 images' eval run $quick --radii 4/255,8/255 --attacks pgd-linf,fgsm-l2 \
    --attack-loss margin --restarts 2 --temperature
for words in 'top-1' 'temperature scaling: ECE' 'gaussian' '8/255' 'from the replay buffer' 'one sampling step'; do
    grep -qF -e "$words" out || bad "jempp eval: no '$words'"
done
! grep -q 'reliable T' err || bad "a warning of few mistakes where there are enough"
[ -s run/sheets/classes.png ] && [ -s run/sheets/best-px.png ] || bad "no sheets"
cp run/eval.json first.json
expect 0 'apgd linf, ce, then targeted dlr (9 targets), steps 100, restarts 1' eval run --limit 4 --threads 1 \
    --tasks attack --attacks apgd-linf,apgd-l2 --radii 4/255 --out auto
grep -q '"step_rule": "adaptive size"' auto/eval.json || bad "eval.json does not say how APGD steps"
expect 0 'apgd l2, ce, then targeted dlr (9 targets), steps 3, restarts 2' eval run --limit 4 --threads 1 \
    --tasks attack --attacks apgd-l2 --attack-steps 3 --restarts 2 --refine 1 --draws 2 --out auto
expect 0 '"top1": ' eval run $quick --tasks acc --refine 2 --draws 2 --json
is_json eval run --json
cmp -s <(tail -n +1 out) <(cat run/eval.json) || bad "eval --json is not the file"
# ---- ONNX and TensorBoard; tests/interop.py reads them with the programs that they are for
expect 0 'tiny.onnx: written' export run tiny.onnx
expect 0 'tiny.onnx: written' export run tiny.onnx
[ "$(head -c 9 tiny.onnx | tail -c 5)" = jempp ] || bad "tiny.onnx"
expect 2 '--half: not for .onnx' export run half.onnx --half
expect 2 'other.onnx: exists and is not an ONNX model' export run "$(cp grid.png other.onnx; echo other.onnx)"
expect 2 'expected a name that ends in .safetensors, .pt, .pth or .onnx' export run model.tflite
expect 0 '12 steps, 1 sample grid' report run --tensorboard
[ "$(ls run/events.out.tfevents.*.jempp-report | wc -l)" = 1 ] && rm run/events.* || bad "no event file"

# ---- scores of many images in a file
mkdir -p bulk/ring && cp grid.png bulk/ring/a.png && echo no >bulk/ring/b.png
for f in csv jsonl npz; do
    expect 1 "scores.$f: 1003 images, 1 unreadable" predict run bulk grid.png shapes:test --out scores.$f --threads 1
    expect 0 "scores.$f: 2 images" predict run grid.png bulk/ring/a.png --out scores.$f --threads 1
done
[ "$(wc -l <scores.csv)" = 3 ] && grep -q '^grid.png,0,,' scores.csv && grep -q '^bulk/ring/a.png,1,3,' scores.csv || bad "scores.csv"
expect 1 'bulk/ring/b.png: 3 bytes, expected a PNG' predict run bulk --strict --out strict.csv
[ ! -e strict.csv ] && [ ! -e strict.csv.tmp ] || bad "a file of an ended prediction"
expect 2 'expected a name that ends in .csv, .jsonl or .npz' predict run bulk --out scores.txt
expect 2 'grid.csv: exists and is not a file of scores' predict run bulk --out "$(cp grid.png grid.csv; echo grid.csv)"
expect 1 'grid.csv: 2 images, 1 unreadable' predict run bulk --out grid.csv --force
expect 1 'nosuch: no such file, folder or image set' predict run nosuch --out scores.csv
expect 0 'top-1' eval run $quick --tasks acc,ood --ood uniform --scores csv --out kept
[ "$(head -1 kept/scores/shapes.csv)" = "$(head -1 scores.csv)" ] && [ -s kept/scores/uniform.csv ] || bad "eval --scores"
expect 0 'ood' eval model.safetensors $quick --tasks ece,ood --ood uniform,folder:. --input-noise 0.03 --json
[ -s model-eval/eval.json ] || bad "no eval.json for a lone model"
! grep -q '"top1"' model-eval/eval.json || bad "a task that was not asked for"
if command -v python3 >/dev/null; then
    python3 - first.json run/eval.json model-eval/eval.json <<'END' || bad "eval.json"
import json, sys
a, b, lone = (json.load(open(f)) for f in sys.argv[1:])
assert list(b["tasks"]) == ["acc", "ece", "ood", "attack", "samples", "speed"]
assert all(a["tasks"][k] == b["tasks"][k] for k in b["tasks"] if k != "acc"), "other tasks changed"
assert b["tasks"]["acc"]["refine"] == 2 and a["tasks"]["acc"]["refine"] == 0
acc, ece, ood, attack = (a["tasks"][k] for k in ("acc", "ece", "ood", "attack"))
assert sum(map(sum, acc["confusion"])) == acc["n"] == 40
assert sum(b["count"] for b in ece["reliability"]) == 40 and ece["temperature"]["n_valid"] == 100
own = lone["tasks"]["ece"]["temperature"]
assert own["n_valid"] is None and abs(own["t"] - ece["temperature"]["t"]) < 1e-5, "the model's own temperature"
assert abs(attack["clean"] - acc["top1"]) < 1e-6
curve = attack["curves"][0]
assert curve["radii"] == [0, 4 / 255, 8 / 255] and curve["accuracy"][0] == attack["clean"]
assert curve["accuracy"] == sorted(curve["accuracy"], reverse=True)
for s in ood["sets"]:
    for k in "logpx", "maxp", "maxlogit", "gradnorm":
        assert 0 <= s["scores"][k]["auroc"] <= 1 and sum(s["scores"][k]["hist"]["out"]) == s["n"]
END
fi
expect 0 'shapes (validation) on' eval run --tasks acc --split valid --out held --threads 1
top1=$(sed -n 's/ *"top1": \([0-9.]*\),*/\1/p' held/eval.json)
best=$(sed -n 's/ *"best_valid_accuracy": \([0-9.]*\),*/\1/p' run/run.json)
awk "BEGIN { exit !($top1 - 100 * $best < 1e-4 && 100 * $best - $top1 < 1e-4) }" ||
    bad "--split valid: $top1 %, the run's best was $best"
cp run/eval.json before
expect 0 'shapes (validation) on' eval run --tasks acc --split valid --limit 20 --threads 1
[ -s run/valid/eval.json ] && cmp -s before run/eval.json || bad "--split valid changed the results on the test images"
expect 2 'expected no --temperature' eval run --tasks ece --split valid --temperature
expect 0 'few: 2 steps' train $net --data shapes --iterations 2 --batch 16 --px none --train-images 200 --valid-images 19 --threads 1 --out few
test=$(sed -n 's/ *"test_accuracy": \([0-9.]*\),*/\1/p' few/run.json)
grep -q '"test_ece": 0' few/run.json || bad "run.json does not have the test ECE"
expect 0 'top-1' eval few --tasks acc --threads 1 --out few-eval
top1=$(sed -n 's/ *"top1": \([0-9.]*\),*/\1/p' few-eval/eval.json)
awk "BEGIN { exit !(\"$test\" != \"\" && $top1 - 100 * $test < 1e-4 && 100 * $test - $top1 < 1e-4) }" ||
    bad "run.json has test accuracy '$test', an evaluation $top1 %"
expect 0 '"temperature": null' eval few $quick --tasks ece --json        # at most 19 mistakes are too few to fit one
expect 0 '"errors": ' eval few $quick --tasks ece --temperature --json
grep -q '^warning: --temperature: only [0-9]* of 19 validation images are misclassified (20 are needed for a reliable T)$' err ||
    bad "no warning of a temperature that is fitted to few mistakes"
expect 2 'expected no --data' eval run --tasks acc --split valid --data shapes
expect 0 'few: 3 steps' train --resume --out few --iterations 3 --threads 1
! grep -q 'warmup' err out || bad "a resumed run is told to change --warmup, which it keeps"
! grep -q 'last bits' err out || bad "a run that is resumed as it began may not differ"
expect 2 'sam-images without SAM: expected sam above 0, as 1' train --resume --out few --iterations 4 --sam-images 8
expect 0 'few: 4 steps' train --resume --out few --iterations 4 --threads 2 --sam 2
grep -q '"sam": "2"' few/run.json || bad "a resumed run does not have the --sam that it was given"
cat out err | grep -q 'was on 1 thread, .* on 2 threads, .*: results may differ in the last bits' ||
    bad "other threads than before are not mentioned"
expect 2 'has results on shapes (validation); remove it, or choose another --out for those on shapes' eval run $quick --tasks ece --out held
sed -i 's/"md5": "./"md5": "x/' run/eval.json                   # as if the model had been another
expect 0 'top-1' eval run $quick --tasks acc
! grep -q '"ood"' run/eval.json || bad "results of another model were kept"

# ---- refused before anything is computed
expect 2 "--tasks: found 'frob'" eval run --tasks acc,frob
expect 0 'task fid left out: no weights' eval run --tasks acc,fid
expect 2 'no such image set' eval run --tasks ood --ood frobnicate
expect 2 'no such folder' eval run --tasks ood --ood folder:nosuch
expect 2 "--ood: found 'uniform,', an empty name in it" eval run --tasks ood --ood uniform,
mkdir empty
expect 1 'no PNG, JPEG or WebP picture' eval run --tasks ood --ood folder:empty
head -c 3073 /dev/zero >black.bin
expect 2 'cifar-file:black.bin: colour images of 32 x 32, the model takes colour images of 16 x 16' eval run --tasks ood --ood cifar-file:black.bin
expect 2 '/black.bin: colour images of 32 x 32, the model takes colour images of 16 x 16' eval run --data cifar-file:black.bin
mkdir -p two/test/a two/test/b two/train/a two/train/b
for d in two/*/*; do cp grid.png $d; done
expect 2 '2 classes; the model has 10' eval run --data folder:two
for k in 0 1 2 3 4 5 6 7 8 9; do mkdir -p ten/train/$k ten/test/$k && cp grid.png ten/train/$k && cp grid.png ten/test/$k; done
expect 2 'run/eval.json: has results on shapes; remove it, or choose another --out for those on folder:/' eval run --data folder:ten
expect 0 'top-1' eval run $quick --tasks acc --data folder:ten --out ten-eval
grep -q "ten: other class names than the model's (class 0 is '0' here, 'disc' there)" err || bad "no word of other classes"
for k in 1 2 3; do for d in ten/test/*; do cp grid.png $d/$k.png; done; done
expect 0 '"n": 20,' eval run --limit 20 --threads 1 --tasks acc,ood,attack --attacks fgsm-linf --radii 1/255 --ood folder:ten/test --data folder:ten --out some --json
[ "$(tr -d ' \n' <some/eval.json | grep -o '"confusion":[^"]*' | tr -d '[]' | sed 's/.*://' | tr ',' '\n' | awk 'NF{n++; s+=$1; if (n%10==0) {print s; s=0}}' | sort -u)" = 2 ] ||
    bad "a limit of 20 does not take two images of each of ten classes"
mkdir damaged && echo junk >damaged/eval.json
expect 1 'damaged/eval.json: not JSON: wrong at byte 0 of 5; remove it, or choose another --out' eval run $quick --tasks acc --out damaged
mkdir -p closed/eval.json.tmp                                   # even root cannot write there
expect 1 'closed/eval.json: ' eval run $quick --tasks acc --out closed
! grep -q 'images' err || bad "evaluated before the destination was checked"
( trap '' XFSZ; ulimit -f 1; "$jempp" eval run $quick --tasks acc --out full 2>err; echo $? >code ) | cat >out
grep -q 'top-1' out || bad "results that cannot be written are not printed"
[ "$(cat code)" = 1 ] && grep -q 'full/eval.json: ' err || bad "results that cannot be written are no failure"
expect 0 'train                    logpx' eval run $quick --tasks ood --ood folder:two,folder:two/train
expect 2 "--radii: found '2', expected" eval run --tasks attack --radii 2
expect 2 "--radii: found '0.2,0.1', expected" eval run --tasks attack --radii 0.2,0.1
expect 2 "--attacks: found 'cw'" eval run --attacks cw
expect 2 "--attacks: found 'apgd-l1', expected some of" eval run --attacks apgd-l1
expect 0 'pair: 1 step in' train $net --data folder:two --side 8 --iterations 1 --batch 2 --px none --valid-images 0 --threads 1 --out pair
grep -q '1 step (1 epoch), batch 2, into pair' err || bad "train: $(cat err)"
expect 2 'sam-images = 1: batch normalisation needs 2 images' train $net --data folder:two --side 8 --iterations 1 --batch 2 \
    --sam 2 --sam-images 1 --px none --valid-images 0 --threads 1 --out no-pair
expect 2 '--attacks apgd-l2: found a model of 2 classes, expected at least 4' eval pair --tasks attack --attacks apgd-l2
expect 2 'eval: expected one run folder or model file' eval
if command -v python3 >/dev/null; then
    python3 - model.safetensors nostats.safetensors <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", data[:8])
head = json.loads(data[8:8 + n])
head["other.mean"] = head.pop("f.bn1.running_mean")
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
END
    expect 1 'batch normalisation needs running statistics' eval nostats.safetensors
fi

# ---- a signal leaves what is finished
cp -r run stopped
rm stopped/eval.json
"$jempp" eval stopped --tasks acc,attack --limit 1000 --attack-steps 5000 --threads 1 >out 2>err </dev/null &
wait_for stopped/eval.json $!
kill -INT $!
wait $!
[ $? = 130 ] || bad "an evaluation that was stopped does not end with 130"
grep -q 'jempp: 1 of 2 tasks are done and kept in stopped/eval.json: stopped' err || bad "it does not say what is kept"
grep -q '"top1"' stopped/eval.json || bad "the finished task is lost"

# ---- a reader that leaves early is no failure
exec 3> >(:)
sleep 0.2
"$jempp" info >&3 2>err || bad "a closed pipe"
exec 3>&-
[ ! -s err ] || bad "a closed pipe is no news"
[ ! -e /dev/full ] || { "$jempp" info >/dev/full 2>err; [ $? = 1 ] && grep -q 'cannot write' err; } || bad "a full disk"

# ---- a stream that is closed is not mixed up with a file
tiny="train $net --data shapes --iterations 2 --batch 16 --steps 1 --px shared --buffer 64 --train-images 200 --valid-images 100 --threads 1"
"$jempp" $tiny --out closed1 >&- 2>&- </dev/null
[ $? = 1 ] || bad "output that nobody can read is no failure"
[ "$(cut -f1 closed1/log.tsv | tr '\n' ' ')" = 'step 0 1 ' ] || bad "messages are in the log of a run"
"$jempp" $tiny --out closed2 >out 2>err <&- || bad "exit code $? without standard input"
"$jempp" predict model.safetensors - <&- >out 2>err
[ $? = 1 ] && grep -q 'standard input' err || bad "a picture was read from closed standard input"

# ---- a run folder of others has links to files of the user's
cp -r closed2 linked
mkdir guarded && echo precious >guarded/log.tsv
ln -sf ../guarded/log.tsv linked/log.tsv
expect 1 'linked/log.tsv: a link, expected a file' train --resume --out linked --iterations 4
rm -r linked/log.tsv linked/samples
ln -s ../guarded linked/samples
expect 1 'linked/samples: a link, expected a folder' train --resume --out linked --iterations 4
ln -s ../guarded linked/sheets
expect 1 'linked/sheets: a link, expected a folder' eval linked --tasks samples --limit 10 --threads 1
[ "$(cat guarded/*)" = precious ] || bad "a run wrote through links"

# ---- nohup: the terminal's end is no signal to stop
(trap '' HUP; exec "$jempp" $tiny --iterations 50 --out kept >out 2>err </dev/null) &
wait_for kept/log.tsv $!
kill -HUP $!
wait $! || bad "exit code $? after a SIGHUP that nohup ignores"

# ---- a signal saves and stops
"$jempp" train $net --data shapes --iterations 1000000 --batch 16 --steps 1 --px shared --buffer 64 \
    --train-images 200 --valid-images 100 --threads 1 --out long >out 2>err </dev/null &
wait_for long/last.safetensors $!
kill -TERM $!
wait $!
[ $? = 143 ] || bad "exit code $? after SIGTERM"
grep -q 'continue with: jempp train --resume --out long' out || bad "it does not say how to go on"
expect 2 '--resume: the run has batch = 16, found 8: a run keeps it; leave batch out' train --resume --out long --batch 8 --buffer 64

# ---- how long a run is: one of three options, the user's before a preset's, the newest before the run's
expect 2 '--minutes and --iterations: both set the length of the run; expected one' train --minutes 1 --iterations 2 --out norun
expect 2 '--epochs 0.001: less than one step; an epoch of 200 training images has 12' train $net --data shapes --batch 16 \
    --train-images 200 --valid-images 100 --epochs 0.001 --out norun
[ ! -e norun ] || bad "a run that was rejected left a folder"
expect 0 'few: 6 steps' train --resume --out few --epochs 0.5 --threads 1
expect 2 '--resume: the run has done 6 steps (0.5 epochs), found 3: expected no fewer' train --resume --out few --iterations 3
expect 0 'note: the run was complete; a larger --epochs with --resume extends it' train --resume --out few --threads 1
expect 0 '0.02 minutes' train --resume --out few --minutes 0.02 --threads 1
expect 0 'note: the run was complete; a larger --minutes with --resume' train --resume --out few --threads 1
expect 0 'fast: 2 steps' train --preset cifar10-fast --data shapes --side 8 --model wrn-10-1 --batch 8 --iterations 2 --px none \
    --sam 0 --px-loss bce --threads 1 --out fast        # the preset has minutes, sam-from and a margin
grep -q '"px-margin": "0"' fast/run.json || bad "a preset's margin does not give way to --px-loss bce"
expect 0 'fast: 3 steps' train --preset cifar10-fast --data shapes --side 8 --model wrn-10-1 --batch 8 --iterations 3 --px none \
    --sam 0 --px-loss bce --threads 1 --resume --out fast

# ---- what is no run folder
mkdir void
expect 1 'void: a folder, but not of a run (no log.tsv, run.json or eval.json in it)' report void
expect 1 'void: no checkpoint to resume from (neither last.safetensors nor prev.safetensors in it)' train --resume --out void
[ -d void ] || bad "train --resume removed a folder that it did not make"
mkdir -p shelf && cp -r few fast shelf
for command in report eval info 'train --resume --out'; do
    expect 1 '; runs in it: fast, few' $command shelf
done
for command in report 'train --resume --out'; do
    expect 2 'model.safetensors: is a safetensors file, expected the folder of a run' $command model.safetensors
done
cp -r few torn && truncate -s -10 torn/log.tsv
expect 0 'torn/report.html: written' report torn
cp -r fast 'my run'
expect 0 "not evaluated yet: run jempp eval 'my run'" report 'my run'
mkdir 'my run/report.html.tmp' && rm 'my run/report.html'       # even root cannot write there
expect 1 '(--out FILE.html writes elsewhere)' report 'my run'
rmdir 'my run/report.html.tmp'
rm 'my run/best.safetensors'
expect 0 'not evaluated yet: the run has no model yet' report 'my run'

# ---- everything long answers soon, and says with its exit code that it was stopped
mkdir many
for i in $(seq 2000); do ln -s ../grid.png many/$i.png; done
mkdir -p plenty/a plenty/b              # links: many pictures that take long to read
for i in $(seq 3000); do ln -s "$here/../docs/cifar10.png" plenty/a/$i.png; done
ln -s "$here/../docs/cifar10.png" plenty/b/1.png
ln -s "$here/../docs/cifar10.png" plenty/b/2.png
# children: the processor time of all that has ended so far, in ms, in $spent; used PID: that of a running program, in $ms
children() {
    times >times.txt
    spent=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int(1000 * (60 * ($1 + $3) + $2 + $4)) }' times.txt)
}
ticks=$(getconf CLK_TCK)
used() {
    local line fields
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return
    read -r -a fields <<<"${line##*) }"
    [ "${fields[0]}" != Z ] && ms=$(((fields[11] + fields[12]) * 1000 / ticks))
}
# soon CODE SIGNAL AFTER COMMAND...: a signal once it has computed for AFTER ms ends it before two threads have computed
# for a second. The clock of a machine that other tests share says nothing: only a program that hangs is too late by it.
most=2000 watched=
case $jempp in */asan/* | */cov/* | */poison/*) most=10000 watched=1 ;; esac
soon() {
    local code=$1 sig=$2 after=$3 before begun ms=0 rc
    shift 3
    "$jempp" "$@" >out 2>err </dev/null &
    local pid=$!
    while used $pid && [ $ms -lt "$after" ]; do sleep 0.02; done
    children && before=$spent
    used $pid && kill -"$sig" $pid 2>/dev/null || { wait $pid; bad "$1 had ended before it could be stopped: $?"; return; }
    begun=$SECONDS
    wait $pid
    rc=$?
    children && ms=$((spent - before - ms))
    [ $rc = "$code" ] || bad "$1 after SIG$sig: exit code $rc, expected $code"
    [ $ms -lt $most ] || bad "$1 after SIG$sig: computed for $ms ms before it ended"
    [ $((SECONDS - begun)) -lt 300 ] || bad "$1 after SIG$sig: ended after $((SECONDS - begun)) s"
}
cifar=$here/../models/cifar10-wrn-16-4.safetensors
soon 130 INT 500 predict "$cifar" many/*.png --threads 2
soon 143 TERM 500 predict "$cifar" many/*.png --json --threads 2
is_json predict that was stopped
soon 130 INT 500 sample "$cifar" --count 1000 --batch 16 --out many.png --threads 2
soon 130 INT 500 bench --model wrn-16-4 --batch 16 --threads 2
soon 143 TERM 100 train --data shapes --model wrn-28-10 --threads 2 --out early
[ ! -e early ] || bad "train that was stopped at its start left a folder"
soon 130 INT 1000 train --data shapes --model wrn-28-10 --threads 2 --out set-up
soon 130 INT 300 train --data folder:plenty --side 64 --model wrn-16-4 --threads 2 --out reading
soon 130 INT 300 data check folder:plenty
expect 0 'brief: ' train $net --data shapes --minutes 0.02 --batch 16 --steps 1 --px shared --buffer 64 \
    --train-images 200 --valid-images 100 --threads 1 --out brief

# ---- settings side by side; sanitizers have seen such runs
if [ ! $watched ] && command -v python3 >/dev/null; then
    compare() { python3 "$here/../tools/compare.py" --jempp "$jempp" --out both --vary px=clean,shared "$@"; }
    compare -- --data shapes --side 16 --model wrn-10-1 --batch 16 --buffer 64 --train-images 200 --iterations 3 \
        --steps 2 --ema 0.9 --threads 1 >out 2>err || bad "compare.py: exit code $?"
    grep -qE '^\| shared \| 0\.2 \| [0-9]+ \| [0-9.]+ \| 0 \| – \| [0-9.]+ \| [0-9.]+ \|' out || bad "compare.py: no row of 'shared'"
    cp both/table.md table.md
    compare >out 2>err || bad "compare.py: exit code $? for runs that are complete"
    cmp -s out table.md && cmp -s both/table.md table.md || bad "compare.py: another table from the same runs"
    python3 "$here/../tools/compare.py" --jempp nowhere --out cmp --vary px=clean >out 2>err
    [ $? = 2 ] && grep -q 'error: --jempp nowhere: no such program' err && [ ! -e cmp ] || bad "compare.py without a program"
    python3 "$here/../tools/compare.py" --jempp "$jempp" --out cmp --vary px=frob -- --data shapes >out 2>err
    [ $? = 1 ] && grep -q "^jempp: --px: found 'frob', expected one of" err || bad "compare.py does not say why a run failed"
    python3 "$here/../tools/compare.py" --jempp "$jempp" --out fails --vary preset=softmax -- --data shapes --side 16 \
        --model wrn-10-1 --batch 16 --train-images 200 --iterations 3 --threads 1 --retries 0 --loss-limit 1 >out 2>err
    grep -qE '^\| softmax \| 95\.8 \| – \| 0\.0 \| 0 \| – \| 0 \| [0-9]+ \| – \|' out || bad "compare.py: no row of a run that diverged"

    mkdir one two
    for seed in one:1 two:2; do
        echo "{\"options\": {\"seed\": \"${seed#*:}\", \"lr\": \"0.1\", \"out\": \"$seed\"}, \"steps\": 3, \"seconds\": 90, \"retries\": 0}" >"${seed%:*}/run.json"
        echo "{\"tasks\": {\"acc\": {\"top1\": 9${seed#*:}.0}}}" >"${seed%:*}/eval.json"
    done
    seeds() { python3 "$here/../tools/seeds.py" "$@" >out 2>err; }
    seeds one two && grep -qF '| accuracy, % | 91.00 | 92.00 | 91.50 | 0.71 |' out && [ ! -s err ] || bad "seeds.py: mean and standard deviation"
    sed -i 's/"0.1"/"0.2"/' two/run.json
    seeds one two && grep -q 'warning: two differs from one in lr' err || bad "seeds.py does not compare options"
    rm two/eval.json
    seeds one two
    [ $? = 1 ] && grep -q 'two/eval.json: No such file or directory; expected a run folder after jempp eval' err || bad "seeds.py without an evaluation"
fi

# ---- the documentation is the program's
"$jempp" options-doc >out
cmp -s out "$here/../docs/options.md" || bad "docs/options.md differs: jempp options-doc > docs/options.md"
for name in $(grep -rhoE 'getenv\("[A-Z_]+' "$here/../src" | cut -d'"' -f2 | grep -vx HOME); do
    grep -q "\`$name\`" out || bad "$name is read and not documented"
done
"$jempp" man >jempp.1
for word in '\-\-weight\-decay X' 'jempp\-m10' 'JEMPP_DATA' 'jempp data fetch NAME'; do
    grep -qF -e "$word" jempp.1 || bad "the man page has no $word"
done
if command -v man >/dev/null && command -v groff >/dev/null; then
    LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z jempp.1 2>err >/dev/null && [ ! -s err ] || bad "jempp man"
fi

# ---- shells complete what the tables have
"$jempp" bash-completion >completion
complete_line() {       # complete_line WORD...: what bash offers for the last word, in one line
    bash -c 'compopt() { :; }; . ./completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _jempp; echo "${COMPREPLY[*]}"' - "$@"
}
offers() {              # offers WORDS WORD...
    local found; found=$(complete_line "${@:2}")
    [ "$found" = "$1" ] || bad "completion of ${*:2}: found '$found', expected '$1'"
}
offers 'predict' jempp p
offers 'list check fetch' jempp data ''
offers '--steps --step-size' jempp sample --step
offers '' jempp predict --step
offers 'clean' jempp train --px cl
offers 'clean' jempp train --px = cl
offers 'jempp-m10 jempp-m20 jempp-m5' jempp train --preset jempp
offers '' jempp train --steps 1
offers '' jempp predict run a.png
"$jempp" man >jempp.1
grep -q '^file of scores, one row per image' jempp.1 && grep -q '^HTML page to write' jempp.1 || bad "the man page has one text for every --out"
"$jempp" zsh-completion >_jempp
grep -qF "'--px=[real images for p(x)" _jempp || bad "zsh completion has no --px"
if command -v zsh >/dev/null; then zsh -n _jempp 2>err || bad "jempp zsh-completion"; fi

[ "$failed" = 0 ]
