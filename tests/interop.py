"""interop.py PROGRAM MODEL - files for others' programs, read by those: ONNX by onnx and onnxruntime, event files by
TensorBoard, scores by scikit-learn, the network of the Python package by PyTorch (JEMPP_LIBRARY: its library). A check whose packages are not installed is reported and left out.

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

sys.path.pop(0)                 # the fixtures in tests/torch and tests/npz are no modules

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


def read_log(run):
    rows = [line.split("\t") for line in Path(run, "log.tsv").read_text().split("\n")[:-1]]
    return {name: {int(r[0]): float(r[i]) for r in rows[1:] if r[i]} for i, name in enumerate(rows[0])}


def tensorboard_equals():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def same(run, sentence, upto=None):
        a = EventAccumulator(run, size_guidance={"scalars": 0, "images": 0}).Reload()
        tags, log, equal = a.Tags(), read_log(run), True
        for name in log:
            if name == "step" or not log[name]:
                continue
            there = f"train/{name}" in tags["scalars"]
            got = {e.step: e.value for e in a.Scalars(f"train/{name}")} if there else {}
            want = {s: float(np.float32(v)) for s, v in log[name].items() if upto is None or s < upto}
            equal = equal and got == {s: v for s, v in want.items() if not math.isnan(v)}
        check(f"TensorBoard, {sentence}: the scalars of {len(log['step'])} steps equal log.tsv", equal)
        grids = [] if upto else sorted(Path(run, "samples").glob("step-*.png"))
        images = a.Images("samples") if grids else []
        check(f"TensorBoard, {sentence}: {len(grids)} sample grids are the run's",
              [(i.step, i.encoded_image_string) for i in images]
              == [(int(g.stem[5:]) - 1, g.read_bytes()) for g in grids])

    options = ["--data=shapes", "--model=wrn-10-1", "--stem=4x4", "--side=16", "--batch=16", "--steps=2", "--px=shared",
               "--buffer=64", "--train-images=200", "--valid-images=40", "--warmup=5", "--threads=1"]
    jempp("train", *options, "--iterations=30", "--tensorboard", "--out=tb")
    same("tb", "as it trained")
    jempp("train", "--resume", "--out=tb", "--iterations=40", "--tensorboard")
    same("tb", "resumed")
    jempp("report", "tb", "--tensorboard", code=2)
    for f in Path("tb").glob("events.*"):
        f.unlink()
    for _ in range(2):                                      # the second replaces the first
        jempp("report", "tb", "--tensorboard")
    file, = Path("tb").glob("events.*")
    same("tb", "of an old run")
    whole = file.read_bytes()
    records, at = [], 0
    while at < len(whole):
        at += 16 + int.from_bytes(whole[at:at + 8], "little")
        records.append(at)
    file.write_bytes(whole[:records[10] + 30])              # the version, then ten steps and a part
    same("tb", "cut off", upto=10)


def scores_equal():
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
    jempp("eval", "tb" if Path("tb").exists() else "run-batch-norm", "--tasks=acc,ood", "--ood=uniform,interp", "--scores=csv",
          "--out=scored")
    tasks = json.loads(Path("scored/eval.json").read_text())["tasks"]
    read = lambda name: list(csv.DictReader(open(f"scored/scores/{name}.csv", newline="")))
    own = read("shapes")
    label = [int(r["label"]) for r in own]
    top1 = 100 * accuracy_score(label, [int(r["predicted"]) for r in own])
    check(f"scikit-learn: accuracy {top1} % is eval's", abs(top1 - tasks["acc"]["top1"]) < 1e-9)
    for s in tasks["ood"]["sets"]:
        other = read(s["name"])
        score = [float(r["log_px"]) for r in own + other]
        auroc = roc_auc_score([1] * len(own) + [0] * len(other), score)
        want = s["scores"]["logpx"]["auroc"]
        check(f"scikit-learn: AUROC {auroc:.6f} of {s['name']} is eval's", abs(auroc - want) < 1e-5)


def torch_equals():
    import torch
    sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
    import jempp as package
    for name, side, c in (("trained", 32, 3), ("no-norm", 16, 3), ("grey-4x4", 28, 1)):
        x = pictures(f"of-{name}", side, c)
        with torch.no_grad():
            z = package.torch.load(trained if name == "trained" else f"run-{name}")(torch.tensor(x)).numpy()
        worst = float(np.abs(z - np.load(f"{name}.npz")["logits"]).max())
        check(f"PyTorch, {name}: logits within 1e-4 (largest difference {worst:.1e})", worst < 1e-4)


if needs("tensorboard"):
    tensorboard_equals()
if needs("sklearn"):
    scores_equal()
if needs("onnx", "onnxruntime"):
    onnx_equals()
    if needs("torch"):
        torch_equals()
sys.exit(1 if failed else 0)
