#!/usr/bin/env bash
# serve_test.sh - jempp serve as its clients meet it: the JSON API, events, limits, who may ask, broken and hostile
# requests, and a run that is stopped from the page. tests/serve_test.py asks; the page itself is tests/page.sh.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
command -v python3 >/dev/null || { echo "[  SKIPPED ] 1 test: no python3" && exit; }
module=${JEMPP_MODULE_DIR:-$(dirname "$jempp")}/jempp-serve.so
[ -f "$module" ] || { echo "[  SKIPPED ] 1 test: built without libmicrohttpd" && exit; }

tiny="--data shapes --side 8 --model wrn-10-1 --batch 20 --buffer 40 --train-images 200 --valid-images 40 --steps 2
      --device auto --threads 1 --conv direct --warmup 0 --lr 0.001"
# shellcheck disable=SC2086
"$jempp" train $tiny --iterations 30 --out runs/done >out 2>err || { bad "training" && exit 1; }
# shellcheck disable=SC2086
"$jempp" train $tiny --epochs 1000000 --lr 0 --out runs/live >live.out 2>live.err &
trainer=$!
JEMPP=$jempp python3 -B "$here/serve_test.py" "$here/pictures/cat.png" $trainer "$here/../docs/serve.md" ${MANY:+--many "$MANY"}
rc=$?
[ $rc = 0 ] || kill $trainer                # else it was stopped, and ends by itself
wait $trainer
code=$?
[ $rc = 0 ] || { tail -n 5 live.err && exit 1; }
check "a run that the page stopped exits with 0, not $code" [ $code = 0 ]
check "it says how to continue" grep -q 'continue with: jempp train --resume' live.out
check "the request is gone" [ ! -e runs/live/stop ]
[ $failed = 0 ]
