"""interop.py PROGRAM MODEL - files for others' programs, read by those: ONNX by onnx and onnxruntime, event files by
TensorBoard, scores by scikit-learn. A check whose packages are not installed is reported and left out.

MODEL is a trained model of 32 x 32 colour images. Work is done in the current folder.
"""

import csv
import json
import math
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

program, trained = sys.argv[1:]
failed = []


def jempp(*args, code=0):
    r = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if r.returncode != code:
        raise SystemExit(f"jempp {args}: exit code {r.returncode}\n{r.stderr}")
    return r.stdout + r.stderr


def check(sentence, holds):
    print("ok:" if holds else "FAILED:", sentence)
    failed.extend([] if holds else [sentence])


def needs(*modules):
    try:
        for m in modules:
            __import__(m)
        return True
    except ImportError as e:
        print(f"skipped: {e}")
        return False


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    h, w, c = pixels.shape
    rows = np.zeros((h, 1 + w * c), np.uint8)
    rows[:, 1:] = pixels.reshape(h, w * c)
    head = struct.pack(">IIBBBBB", w, h, 8, 2 if c == 3 else 0, 0, 0, 0)
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                           + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b""))


def pictures(folder, side, channels, n=20):
    """A folder of random pictures, two classes; their pixels [n, c, side, side] in [0, 1]."""
    random = np.random.default_rng(side)
    a = random.integers(0, 256, (n, side, side, channels), np.uint8)
    for i, image in enumerate(a):
        sub = Path(folder, "ab"[i >= n // 2])
        sub.mkdir(parents=True, exist_ok=True)
        write_png(sub / f"{i:03}.png", image)
    return a.transpose(0, 3, 1, 2).astype(np.float32) / 255


TINY = ["--batch=8", "--steps=1", "--px=shared", "--buffer=16", "--valid-images=0", "--warmup=1", "--iterations=4"]


def onnx_equals():
    import onnx
    import onnxruntime
    cases = {"no-norm": (["--model=wrn-16-2", "--norm=none"], 16, 3),
             "grey-4x4": (["--model=wrn-10-1", "--stem=4x4"], 28, 1),
             "batch-norm": (["--model=wrn-10-2"], 32, 3)}
    models = {"trained": (trained, pictures("of-trained", 32, 3))}
    for name, (options, side, c) in cases.items():
        x = pictures(f"of-{name}", side, c)
        jempp("train", *options, *TINY, f"--data=folder:of-{name}", f"--side={side}",
              f"--channels={c}", "--out", f"run-{name}")
        models[name] = (f"run-{name}", x)
    for name, (model, x) in models.items():
        file = f"{name}.onnx"
        jempp("export", model, file)
        onnx.checker.check_model(onnx.load(file), full_check=True)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        jempp("predict", model, f"of-{name}", "--out", f"{name}.npz", "--force")
        want = np.load(f"{name}.npz")
        worst = 0.0
        for part in (slice(0, 1), slice(0, len(x))):                    # the batch is free
            got = dict(zip(("logits", "probs", "log_px"),
                           session.run(["logits", "probs", "log_px"], {"image": x[part]})))
            for k, v in got.items():
                worst = max(worst, float(np.abs(v - want[k][part]).max()))
        check(f"ONNX, {name}: logits, probs and log_px within 1e-4 (largest difference {worst:.1e})", worst < 1e-4)
        classes = session.get_modelmeta().custom_metadata_map["classes"].split("\n")
        check(f"ONNX, {name}: {len(classes)} class names", len(classes) == want["logits"].shape[1])


if needs("onnx", "onnxruntime"):
    onnx_equals()
sys.exit(1 if failed else 0)
