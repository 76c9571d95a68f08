#!/usr/bin/env bash
# python_test.sh - the Python package: its wheel in a fresh virtual environment, and its tests there. Skipped where
# there is no python3 with NumPy and venv. PYTHON3 names another, which may have PyTorch and PIL.
set -u
# shellcheck source=tests/script.sh
. "$(dirname "$0")/script.sh"
tree=$(cd "$here/.." && pwd)
[ "$jempp" = "$(realpath "$tree/build/jempp")" ] || { skip "the package is built of the release build" && exit 0; }

python=
for p in ${PYTHON3:-python3 /usr/bin/python3}; do
    "$p" -c 'import numpy, venv, ensurepip' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || { skip "no python3 with NumPy and venv (Debian: python3-numpy python3-venv)" && exit 0; }

in_venv() {     # NumPy is the system's: nothing is downloaded
    "$python" -m venv --system-site-packages venv &&
        venv/bin/pip install -q --no-index --disable-pip-version-check "$1"
}
check "the wheel is built" eval '"$python" "$tree/python/jempp_build.py" "$tmp/dist" >out 2>err'
check "a fresh environment takes it" eval 'in_venv dist/*.whl >out 2>err'
check "a tiny model is trained" eval '"$jempp" train --model wrn-10-1 --stem 4x4 --side 16 --data shapes \
    --iterations 12 --batch 16 --steps 2 --px shared --buffer 64 --train-images 200 --valid-images 100 --warmup 5 \
    --threads 1 --out run >out 2>err'
export JEMPP_PROGRAM=$jempp JEMPP_RUN=$tmp/run JEMPP_TREE=$tree
unset JEMPP_MODULE_DIR          # the wheel's own device
cp -r "$tree/python/tests" tests
check "the tests of the package pass there" eval 'venv/bin/python -m unittest -b tests/test_jempp.py >out 2>&1'
grep -h 'skipped=' out
echo "$passed passed, $failed failed"
[ $failed = 0 ]
