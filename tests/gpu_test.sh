#!/usr/bin/env bash
# gpu_test.sh - whole runs on a GPU: resumed with --deterministic they go on bit for bit, without it within the
# tolerance that docs/gpu.md states; a run moves to the CPU and back. Without a GPU nothing is tried.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
if ! "$jempp" info --model wrn-10-1 --device cuda >out 2>&1; then
    echo "[  SKIPPED ] 1 test(s): $(cat out)"
    exit 0
fi

# Wide enough for the own convolutions, in bf16. The rate does not depend on the length, so that a run may be lengthened
# and stay the same run.
small="--data shapes --model wrn-16-4 --train-images 4000 --steps 5 --decay-factor 1 --warmup 20 --lr 0.05 --ema 0.99"
tiny="--data shapes --side 8 --model wrn-10-1 --batch 8 --buffer 40 --train-images 200 --valid-images 40 --steps 2"
train() { "$jempp" train --device cuda "$@" >out 2>err </dev/null; }
same() { python3 "$here/same_state.py" "$1/last.safetensors" "$2/last.safetensors" "${@:3}" >out; }
twice() {       # twice OUT OPTION...: 120 steps, 60 of them after a resume
    train "${@:2}" --iterations 60 --out "$1" && train --resume --iterations 120 --out "$1"
}
# shellcheck disable=SC2086
{
    check "120 steps, deterministic" train $small --deterministic --iterations 120 --out exact
    check "60 and 60 more" twice exact2 $small --deterministic
    check "a resumed run goes on bit for bit" same exact exact2
    check "120 steps with the fastest kernels" train $small --iterations 120 --out fast
    check "60 and 60 more" twice fast2 $small
    check "a resumed run goes on within the stated tolerance" same fast fast2 0.02
    sed 's/^/    /' out
    check "a run of the GPU" train $tiny --iterations 9 --out moved
}
check "goes on on the CPU" "$jempp" train --resume --device ref --iterations 12 --out moved
check "and comes back" train --resume --iterations 15 --out moved
echo "$passed passed, $failed failed"
[ $failed = 0 ]
