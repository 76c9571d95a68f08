#!/usr/bin/env bash
# page.sh [SHOTS] - the live page clicked through in a headless chromium (tests/page.py), beside a run that trains.
# Screenshots go to SHOTS (build/page). SECONDS_LIVE: how long it follows the run.
set -u
shots=$(realpath -m "${1:-build/page}")
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
command -v "${CHROMIUM:-chromium}" >/dev/null || { echo "skipped: chromium is not installed" && exit; }
options="--data shapes --side 16 --model wrn-10-1 --batch 20 --buffer 100 --train-images 400 --valid-images 80 --steps 3
         --threads 1 --conv direct --warmup 0 --lr 0.02"
# shellcheck disable=SC2086
"$jempp" train $options --epochs 12 --out runs/done >out 2>err || { bad "training" && exit 1; }
printf 'step\tepoch\tseconds\treason\n130\t6.5\t9\tthe loss is not finite\n' >runs/done/diverged.tsv
# shellcheck disable=SC2086
nice "$jempp" train $options --epochs 1000000 --seed 2 --out runs/live >live.out 2>live.err &
trainer=$!
for _ in $(seq 3000); do [ ! -e runs/live/best.safetensors ] && kill -0 $trainer || break; sleep 0.1; done
JEMPP=$jempp python3 -B "$here/page.py" . "$here/pictures/cat.png" $trainer "$shots" --seconds "${SECONDS_LIVE:-10}" ||
    { failed=1 && kill $trainer; }
wait $trainer
check "the run that the page stopped exits with 0" [ $? = 0 ]
[ $failed = 0 ]
