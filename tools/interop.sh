#!/usr/bin/env bash
# interop.sh - files that jempp writes, read by the programs that they are for (tests/interop.py), and the Python
# package's network in PyTorch. Packages come from PyPI; what cannot be installed is reported and left out. PYTHON3 names
# a python3 that has them already.
set -eu
cd "$(dirname "$0")/.."
tree=$(pwd)
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
python=${PYTHON3-}
if [ -z "$python" ]; then
    python3 -m venv "$tmp/venv" || { echo "skipped: no python3 with venv" && exit; }
    python=$tmp/venv/bin/python
    for package in numpy onnx onnxruntime tensorboard scikit-learn; do
        timeout 300 "$python" -m pip install -q --disable-pip-version-check --only-binary :all: $package >"$tmp/log" 2>&1 ||
            echo "skipped: $package cannot be installed here"
    done
fi
"$python" -c 'import numpy' || { echo "skipped: no NumPy" && exit; }
make -j"$(nproc)" all build/release/wheel/libjempp.so
export JEMPP_LIBRARY=$tree/build/release/wheel/libjempp.so JEMPP_MODULE_DIR=$tree/build
cd "$tmp"
"$python" "$tree/tests/interop.py" "$tree/build/jempp" "$tree/models/cifar10-wrn-16-4.safetensors"
