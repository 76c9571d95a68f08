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
expect 2 '/slow: 2 classes; the model has 10' eval run --data folder:slow --out no && unread
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
expect 0 'of 100 samples drawn by class the model recognises' \
    eval run --tasks samples --threads 1 --limit 20 --out sheets --classifier run
percent=$(sed -n 's/^ *"agreement": \([0-9.]*\),$/\1/p' sheets/eval.json)
grep -q "\"classifier_agreement\": ${percent:-none},\$" sheets/eval.json || bad "the same model recognises other samples"
expect 1 "expected 10 and 3x" eval run --tasks samples --classifier "$here/../models/cifar10-wrn-16-4.safetensors"
expect 0 'written' report sheets --out page.html
grep -q 'steps of a fresh chain</th><td>[1-9]' page.html || bad "the report has chains of no steps"
awk '/>By class</, /<\/details>/' page.html >by-class
for c in disc square triangle ring cross star diamond checkerboard 'vertical stripes' 'horizontal stripes'; do
    grep -qF "$c" by-class || bad "the report's samples by class omit $c"
done

# ---- a wrong file for a model is named for what it is
mkdir -p kinds/folder && cd kinds || exit 1
cp "$pictures/cat.png" a.png && "$jempp" export ../run a.onnx >/dev/null && "$jempp" sample ../run --from centres --out a.npz >/dev/null
echo '{ "a": 1 }' >a.json && echo 'a,b' >a.csv && : >empty.pt && ln -s nowhere link && printf 'GIF89a          ' >a.gif
mkfifo pipe
while read -r file kind; do
    expect 1 "$file: is $kind, expected a model (.safetensors, .pt) or a run folder" info "$file"
done <<'X'
a.png a PNG picture
a.onnx an ONNX model
a.npz a NumPy archive (.npz)
a.json a JSON file
a.csv a text file
a.gif a GIF picture
empty.pt an empty file
link a broken link
pipe a pipe
/dev/null a device
X
expect 1 'folder: a folder, but not of a run (no run.json in it)' info folder
expect 1 'a.png: is a PNG picture, expected a model' serve a.png
expect 1 'a.png: is a PNG picture, expected tensors (.safetensors, .pt)' fid ../ten ../ten --inception a.png
expect 1 '/dev/null: is a device, expected a picture, a folder, an image set' predict ../run /dev/null
expect 1 'link: is a broken link, expected a picture' predict ../run link
expect 1 'best.safetensors: is a safetensors file; supported are PNG, JPEG and WebP' predict ../run ../run/best.safetensors
expect 2 'best.safetensors: is a safetensors file, expected the folder of a run' report ../run/best.safetensors
expect 2 'predict: argument 2 is empty' predict ../run ''

# ---- predict: one rule for exit codes, a table without rows is none, nothing is left out in silence
expect 1 'a.gif: is a GIF picture; supported are PNG, JPEG and WebP' predict ../run a.gif
! grep -q 'p(y|x)' out || bad "a table of no rows has a header"
expect 1 '1 of 2 images could not be read' predict ../run a.gif a.png
grep -q '^a.png ' out || bad "a picture that is there was not answered"
expect 1 's.csv: 2 images, 1 unreadable' predict ../run a.gif a.png --out s.csv
expect 0 's.csv: 1 image' predict ../run a.png --out s.csv
expect 1 'nosuch: no such file, folder or image set; sets are cifar10' predict ../run nosuch a.png
expect 1 'nosuch: no such file, folder or image set' predict ../run nosuch a.png --out s.csv
cp a.gif folder/ && cp a.gif folder/b.TIFF && echo x >folder/notes.txt
expect 1 'no PNG, JPEG or WebP picture, but 2 of other formats (a.gif, ...)' predict ../run folder
cp a.png folder/
for out in '' '--out s.csv' --json; do
    expect 0 'folder: 2 pictures left out (a.gif, ...): only PNG, JPEG and WebP are read' predict ../run folder $out
done
mkdir -p steer && cp a.png steer/ && cp a.gif $'steer/\e[31mred\x7f.gif'
expect 0 'steer: 1 picture left out (?[31mred?.gif)' predict ../run steer
mkdir -p set/x set/y && cp a.png set/x/1.png && cp a.png set/x/2.png && cp a.png set/y/1.png && cp a.png set/y/2.png && cp a.gif set/y
expect 0 'set: 1 picture left out (a.gif): only' data check folder:set
mkdir -p halves/val && cp -r set halves/train && cp -r set/x halves/val/x
expect 2 'halves: no such folder; shells replace ~ at the beginning of a word only: expected $HOME/halves' data check 'folder:~/halves'
expect 2 'x: no such folder; shells replace ~ at the beginning of a word only' train $net --data shapes '--out=~/x'
[ ! -e ./~ ] || bad "a folder ~ was made"
expect 0 'note: halves/val: not used; expected train/ and test/' data check folder:halves
expect 2 'one name too many; expected one run folder (jempp serve FOLDER compares several runs)' report ../run ../run
cd ..

# ---- labels of a set whose classes are others
expect 0 "warning: folder:kinds/set:test: other classes than the model's (class 0 is 'x' here, 'disc' there)" \
    predict run folder:kinds/set:test --out labels.csv
expect 0 'labels.csv: 1000 images' predict run shapes:test --out labels.csv
! grep -q warning err || bad "a warning about the model's own set"

# ---- a prediction that is stopped says how far it came
mkdir many && for i in $(seq 3000); do ln -s "$here/../docs/cifar10.png" many/$i.png; done
stopped() {     # stopped WORDS ARG...: what it says after SIGINT
    local words=$1 pid
    shift
    rm -f out err
    "$jempp" predict run many/*.png "$@" >out 2>err </dev/null &
    pid=$!
    for _ in $(seq 300); do [ -s out ] || [ -s err ] && break; sleep 0.1; done
    kill -INT $pid
    wait $pid
    [ $? = 130 ] || bad "predict after SIGINT does not end with 130"
    grep -qE "$words" out err || bad "predict that was stopped: no '$words'"
}
stopped 'stopped after [0-9]+ of 3000 images'
stopped 'stopped after [0-9]+ of at least 3000 images' ten
stopped '(s.csv: |stopped after )[0-9]+ of 3000 images' --out s.csv

# Nor does it wait for a picture from standard input that does not come.
mkfifo never
"$jempp" predict run - >out 2>err <>never &
sleep 1 && kill -INT $!
for _ in $(seq 100); do kill -0 $! 2>/dev/null || break; sleep 0.1; done
kill -KILL $! 2>/dev/null
wait $!
[ $? = 130 ] && grep -q 'stopped after 0 of 1 image' err || bad "predict waits for standard input after SIGINT"

# A disk that is full ends it at once: the last picture, which cannot be read, is not reached.
echo no >last.png
(ulimit -f 8 && exec "$jempp" predict run many/*.png last.png --strict --out full.csv) >out 2>err </dev/null
[ $? = 1 ] && grep -q 'full.csv: File too large' err && [ ! -e full.csv ] && [ ! -e full.csv.tmp ] ||
    bad "predict goes on when its file cannot be written"

# ---- hints are options of the command that was called
expect 2 '--stpes: no such option; jempp predict --help lists them' predict run a.png --stpes 5
expect 2 '--thread: no such option; did you mean --threads?' predict run a.png --thread 5
expect 2 '--output: no such option; did you mean --out?' predict run a.png --output a.csv
expect 2 '--foo: no such option; jempp predict --help' predict run a.png --foo
expect 2 '--limit: not an option of jempp predict; it is for eval' predict run a.png --limit

# ---- a class whose name has a comma can be asked for
mkdir -p commas/{'cat, wild',cat,dog} && for d in commas/*; do for i in 1 2 3 4 5; do cp "$pictures/cat.png" "$d/$i.png"; done; done
expect 0 'pets: 2 steps' train $net --data folder:commas --iterations 2 --batch 4 --steps 1 --px shared --buffer 8 --valid-images 2 --threads 1 --out pets
grep -q 'warning: the learning rate rises for --warmup 1000 steps, which is more than half of the run: expected fewer' out err ||
    bad "a warmup longer than the run has no warning"
expect 0 'wild.png: 1 image' sample pets --from centres --class 'cat, wild' --out wild.png
expect 0 'wild.png: 2 images' sample pets --from centres --class 'cat, wild,dog' --out wild.png
expect 2 '--class cow: ' sample pets --from centres --class 'dog,cow' --out wild.png
expect 0 'classes          cat, "cat, wild", dog' info pets

# ---- a folder of runs is not made a run
mkdir -p several && cp -r pets several/first
expect 2 '--out several: expected a folder for this run alone, such as several/NAME; runs in it: first' train $net --data shapes --out several
[ "$(ls several)" = first ] || bad "a run was begun in a folder of runs"

# ---- a run goes on with pictures that were moved, but not with others
for own in '' '--data folder:commas'; do                                # the same set
    expect 0 'on ' eval pets --tasks acc --threads 1 --out own-eval $own
done
mv commas moved
expect 2 "choose another --out for those on folder:$PWD/moved" eval pets --tasks acc --data folder:moved --out own-eval
rm -r own-eval
expect 1 "$PWD/commas: no such folder; --data folder:DIR names the place of pictures that were moved" \
    train --resume --out pets --iterations 3
for own in '--tasks acc' '--tasks acc --split valid' '--tasks ece --temperature'; do
    expect 1 "$PWD/commas: no such folder; --data folder:DIR names the place of pictures that were moved" eval pets $own
    expect 0 'on ' eval pets $own --data folder:moved --threads 1 --out own-eval && rm -r own-eval
    ! grep -q 'warning: folder' err || bad "a warning of pictures that were moved"
done
[ "$(grep -c '^0/.* pictures' err)" = 2 ] || bad "to fit a temperature, pictures are read twice"    # both halves
cp moved/dog/1.png moved/dog/6.png                                      # as if pictures had been added
expect 0 "warning: folder:$PWD/moved: the pictures or classes are not those that the run was trained with" \
    eval pets --tasks acc --data folder:moved --threads 1 --out own-eval && rm -r own-eval
mv moved commas
for own in '--tasks acc' '--tasks acc --data folder:commas' '--tasks acc --split valid' '--tasks ece --temperature'; do
    expect 1 'commas: the pictures or classes are not those that the run was trained with, and would' eval pets $own --threads 1
done
mkdir halved && cp -r commas halved/train && cp -r commas halved/test
expect 0 'on ' eval pets --tasks acc --data folder:halved --threads 1 --out own-eval && rm -r own-eval
expect 1 'halved: the pictures or classes are not those' eval pets --tasks acc --split valid --data folder:halved --threads 1
mkdir -p before && LC_ALL=C sed 's/"images":/"_mages":/' pets/best.safetensors >before/old.safetensors
expect 0 'on ' eval before/old.safetensors --tasks ece --temperature --threads 1 --out own-eval  # of before there were checksums
expect 2 'expected no --data' eval before/old.safetensors --tasks acc --split valid --data folder:commas
rm commas/dog/6.png && mv commas moved
expect 0 'pets: 3 steps' train --resume --out pets --data folder:moved --iterations 3 --threads 1
expect 0 'pets: 4 steps' train --resume --out pets --iterations 4 --threads 1
expect 2 'the run has data = ' train --resume --out pets --data shapes
cp moved/dog/1.png moved/dog/6.png
expect 1 'moved: the pictures or classes are not those that the run was trained with (found 11 images for training, 2 for' \
    train --resume --out pets --iterations 5 --threads 1
cp -r pets 'my pets'
expect 1 "begin another run: train --init 'my pets'" train --resume --out 'my pets' --iterations 5 --threads 1
rm moved/dog/6.png && mv moved/dog moved/doge
expect 1 'the pictures or classes are not those' train --resume --out pets --iterations 5 --threads 1
mv moved/doge moved/dog
expect 0 'pets: 5 steps' train --resume --out pets --iterations 5 --threads 1

# ---- a folder never holds two draws
expect 0 'drawn/: 10 images' sample run --from centres --out drawn/
expect 2 'drawn/: already has 10 pictures; another --out keeps them apart, --force replaces' sample run --count 3 --steps 1 --out drawn/
! grep -q 'images$' err || bad "sample drew before it looked where to write"
expect 0 'drawn: 3 images' sample run --count 3 --steps 1 --out drawn --force
[ "$(ls drawn | tr '\n' ' ')" = '000000.png 000001.png 000002.png ' ] || bad "two draws are mixed: $(ls drawn)"
cp "$pictures/cat.png" drawn/mine.png
expect 0 'drawn: 3 images' sample run --count 3 --steps 1 --out drawn --force
[ -e drawn/mine.png ] || bad "sample removed a picture that it did not draw"
expect 1 'page.html: exists and is not a folder' sample run --count 3 --steps 1 --out page.html/
! grep -q 'images$' err || bad "sample drew before it looked where to write"
expect 2 'page.png: exists and is not a PNG file; --force overwrites it' sample run --from centres --out "$(cp page.html page.png; echo page.png)"

# ---- what else a stranger met
cp "$pictures/cat.png" a.png && cp a.png -- -dash.png
expect 2 '-dash.png: no such option; write ./-dash.png for the file' predict run -dash.png
expect 2 '-x: no such option; options begin with two dashes' predict run -x
expect 0 '-dash.png ' predict run -- -dash.png
expect 2 'a.png: is a PNG picture, expected an image set: cifar10, ' eval run --tasks acc --data a.png --out no
expect 2 'a.png: is a PNG picture, expected an image set: cifar10, ' fid a.png a.png --inception run/best.safetensors
expect 2 '--animation chain.png: expected a name that ends in .webp' sample run --count 1 --steps 1 --animation chain.png
expect 2 '--out and --animation name the same file' sample run --count 1 --steps 1 --out a.webp --animation a.webp
expect 2 'samples without steps: from = starts' sample run --steps 0
mkdir -p folder.csv folder.pt folder.html
for force in '' --force; do
    expect 2 'folder.csv: is a folder, expected the name of a file' predict run a.png --out folder.csv $force
    ! grep -q images err || bad "predict computed before it looked where to write"
    expect 2 'folder.pt: is a folder, expected the name of a file' export run folder.pt $force
    expect 2 'folder.html: is a folder, expected the name of a file' report run --out folder.html $force
done

# ---- an evaluation that is stopped in its first task leaves no empty folder
rm -f err
"$jempp" eval run --tasks attack --attack-steps 5000 --threads 1 --out brief >out 2>err </dev/null &
for _ in $(seq 300); do grep -q attacks err 2>/dev/null && break; sleep 0.1; done
kill -INT $!
wait $!
[ $? = 130 ] && [ ! -e brief ] || bad "an evaluation that was stopped left a folder"

[ "$failed" = 0 ]
