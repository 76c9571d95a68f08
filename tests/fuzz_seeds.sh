#!/usr/bin/env bash
# fuzz_seeds.sh JEMPP FOLDER - small real files of every kind that is read, FOLDER/READER/*, to begin fuzzing with.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
jempp=$(realpath "$1")
rm -rf "$2" && mkdir -p "$2" && cd "$2"
mkdir safetensors model state torch pickle npz images statistics json options arguments png jpeg webp idx cifar svhn folder archive record request follow

"$jempp" train --data shapes --side 8 --model wrn-10-1 --batch 8 --buffer 10 --train-images 50 --valid-images 10 \
    --steps 1 --device ref --threads 1 --iterations 2 --warmup 0 --lr 0.001 --out run 2>log >>log ||
    { cat log && exit 1; }
"$jempp" export run model/half.safetensors --half >>log
cp run/best.safetensors model/best.safetensors
cp run/last.safetensors state/last.safetensors
cp run/run.json json/
"$jempp" eval run --tasks acc,ece,ood,attack --ood uniform --attacks fgsm-linf --limit 8 --device ref --threads 1 2>>log >>log
for part in log.tsv run.json eval.json; do      # 0, 1, 2: which of them it is
    { printf "%d" $((n = ${n--1} + 1)); cat "run/$part"; } >"record/$part"
done
printf '3step\tepoch\tseconds\treason\n1\t0.1\t0.2\tlost\n' >record/diverged.tsv
cp run/log.tsv follow/
token=0123456789abcdef0123456789abcdef
printf 'POST\n/api/v1/predict?noise=0.1&rotate=%%2d30&model=a%%20b\nlocalhost:1\nhttp://localhost:1\nsame-origin\n\n\n' >request/predict
printf 'POST\n/api/sample?token=%s\n[::1]:1\n\nnone\na=b; jempp-1=%s\nBearer %s\n%s' $token $token $token \
    '{"class": "cat", "count": 4, "steps": 10, "seed": 1}' >request/sample
printf 'GET\n/api/run/..%%2f/sample/1\n127.0.0.1\n\n\n\n\n' >request/run
cp run/samples/*.png png/
"$jempp" sample run --from centres --device ref --out webp/centres.webp --no-preview >>log
cp "$here"/golden/*.safetensors safetensors/ 2>/dev/null || true
find safetensors -size +64k -delete
cp "$here"/torch/*.pt torch/
cp "$here"/npz/* npz/
"$jempp" sample run --count 2 --from buffer --out images/two.npz --device ref --threads 1 >>log 2>>log
"$jempp" sample run --count 2 --class all --steps 1 --out images/classes.npz --device ref --threads 1 >>log 2>>log
for p in "$here"/../presets/*.conf; do cp "$p" "options/$(basename "$p")"; done
printf 'A--preset\njempp-m10\n--lr=0.1\n--out\nx\n--resume\n' >arguments/train
printf 'B--count\n9\n--class\ncat,1\n--best\n3\nmodel\n' >arguments/sample
printf 'E--model\nwrn-28-10\n--\n--file\n' >arguments/info
rm -r run log
exec "${PYTHON:-python3}" "$here/fuzz_seeds.py"
