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

# wide enough for the own convolutions, in bf16
small="--data shapes --model wrn-16-4 --train-images 4000 --schedule linear --warmup 20 --epochs 10 --ema 0.99"
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
    check "a resumed run goes on within the stated tolerance" same fast fast2 "${TOLERANCE:-0.02}"
    sed 's/^/    /' out
}
check "a run of the GPU goes on on the CPU" "$jempp" train --resume --device cpu --iterations 122 --out exact
check "and comes back" train --resume --iterations 124 --out exact
echo "$passed passed, $failed failed"
[ $failed = 0 ]
