#!/usr/bin/env python3
"""to_torch.py MODEL [OUT.pt] [--check IMAGES [--jempp PROGRAM] [--count N]] - a jempp model in PyTorch.

MODEL is a safetensors file (RUN/best.safetensors, or what `jempp export` wrote). OUT.pt gets its state dict, which a
Wide-ResNet of the published code loads. --check classifies the first N (1000) images of a file in CIFAR's binary
layout or of an IDX file (gzipped or not) in PyTorch and by `jempp predict`, and fails unless every class is the same
and log p(x) (the logits' LSE) differs by less than 1e-4. From Python: to_torch.load(MODEL) is the network.
Needs PyTorch 1.13 or newer and, to check, PIL.
"""
import argparse
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn as nn

import make_golden as golden

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}


def read(path):
    """Metadata, and the tensors that are the network's by name."""
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = bytearray(f.read())
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, t in header.items():
        if name.startswith(("f.", "class_output.")):
            begin, end = t["data_offsets"]
            tensors[name] = torch.frombuffer(data[begin:end], dtype=TYPES[t["dtype"]]).reshape(t["shape"])
    return meta, tensors


def build(w):
    """The Wide-ResNet that has these tensors, in evaluation mode."""
    blocks = sum(name.startswith("f.layer1.") and name.endswith(".conv1.weight") for name in w)
    stem = w["f.conv1.weight"]
    net = golden.Wrn(depth=6 * blocks + 4, width=w["f.layer1.0.conv1.weight"].shape[0] // 16, channels=stem.shape[1],
                     classes=w["class_output.weight"].shape[0], stem=stem.shape[2],
                     norm=nn.BatchNorm2d if "f.bn1.weight" in w else golden.no_norm)
    net.load_state_dict({k: w[k].to(v.dtype) if k in w else v for k, v in net.state_dict().items()})
    return net.eval()


def load(path):
    return build(read(path)[1])


def images(path, count):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        data = f.read()
    if data[:4] == b"\0\0\x08\x03":                     # IDX: n pictures of h x w bytes
        n, h, w = struct.unpack(">III", data[4:16])
        x = torch.frombuffer(bytearray(data[16:]), dtype=torch.uint8).reshape(n, 1, h, w)
    else:
        x = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32)
    return x[:count]


def by_jempp(program, model, x):
    from PIL import Image
    with tempfile.TemporaryDirectory() as tmp:
        names = [os.path.join(tmp, f"{i:05}.png") for i in range(len(x))]
        for name, p in zip(names, x):
            Image.fromarray((p[0] if len(p) == 1 else p.permute(1, 2, 0)).numpy()).save(name)
        text = subprocess.run([program, "predict", model, *names, "--json", "--device", "cpu"], check=True,
                              stdout=subprocess.PIPE).stdout
    return json.loads(text)


def check(path, x, program):
    meta, w = read(path)
    net, names = build(w), meta.get("classes", "").split("\n")
    with torch.no_grad():
        z = torch.cat([net(golden.pixels(part).float()) for part in x.split(250)])
    found = by_jempp(program, path, x)
    other = sum(names[i] != a["class"] for i, a in zip(z.argmax(1).tolist(), found))
    off = max(abs(v - a["log_px"]) for v, a in zip(torch.logsumexp(z, 1).tolist(), found))
    print(f"{len(x)} images: {other} other classes, log p(x) differs by at most {off:.2g}")
    return other == 0 and off < 1e-4


def main():
    a = argparse.ArgumentParser(usage=__doc__)
    a.add_argument("model")
    a.add_argument("out", nargs="?")
    a.add_argument("--check")
    a.add_argument("--jempp", default=os.path.join(os.path.dirname(__file__), "../build/jempp"))
    a.add_argument("--count", type=int, default=1000)
    o = a.parse_args()
    if o.out:
        torch.save(load(o.model).state_dict(), o.out)
    if o.check and not check(o.model, images(o.check, o.count), o.jempp):
        sys.exit("PyTorch and jempp disagree")


if __name__ == "__main__":
    main()
