#!/usr/bin/env python3
"""bench_inference.py - classification of 1, 64 and 256 images: ours beside PyTorch and onnxruntime.

Ours is `jempp bench --inference`: images in host memory to logits, through the C API. PyTorch and onnxruntime get
the same network, number of threads and images, and the time of a call includes the copy to the GPU and of the logits
back where there is one. PyTorch's modes: plain, channels_last, that in bf16, that compiled. What is not installed
is left out; rounds alternate, and a mode counts with its best round's median.
"""
import argparse
import functools
import json
import os
import statistics
import subprocess
import tempfile
import time

SIZES = (1, 64, 256)


def timed(call):
    """The median of at least 5 calls and half a second of them."""
    times = []
    while len(times) < 5 or sum(times) < 0.5:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def ours(a, precision):
    cmd = [a.jempp, "bench", "--inference", "--json", "--model", a.model, "--device", a.device, "--threads",
           str(a.threads), "--precision", precision]

    def measure():
        done = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return {row["images"]: row["ms"] for row in json.loads(done.stdout)["inference"]}
    return measure


def torch_mode(a, layout="contiguous_format", bf16=False, compiled=False):
    import torch
    from make_golden import Wrn
    torch.set_num_threads(a.threads)
    depth, width = map(int, a.model.split("-")[1:])
    net = Wrn(depth, width).to(a.device, memory_format=getattr(torch, layout)).eval()
    net.requires_grad_(False)
    run = torch.compile(net) if compiled else net
    images = {n: (torch.rand(n, 3, 32, 32) * 2 - 1).contiguous(memory_format=getattr(torch, layout)) for n in SIZES}

    def call(n):
        with torch.inference_mode(), torch.autocast(a.device, torch.bfloat16, enabled=bf16):
            return run(images[n].to(a.device)).float().cpu()

    for n in SIZES:
        for _ in range(3):
            call(n)
    return lambda: {n: timed(functools.partial(call, n)) for n in SIZES}


def onnx_mode(a):
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = a.threads
    with tempfile.TemporaryDirectory() as work:
        model = os.path.join(work, "model.onnx")
        for cmd in (["train", "--data", "shapes", "--side", "32", "--model", a.model, "--px", "none", "--batch", "2",
                     "--iterations", "1", "--valid-images", "0", "--train-images", "20", "--device", "cpu", "--out",
                     os.path.join(work, "run")], ["export", os.path.join(work, "run"), model]):
            done = subprocess.run([a.jempp] + cmd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  universal_newlines=True)
            if done.returncode:
                raise RuntimeError(done.stderr.strip())
        providers = ["CUDAExecutionProvider"] if a.device == "cuda" else ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(model, options, providers=providers)
    name = session.get_inputs()[0].name
    images = {n: numpy.random.rand(n, 3, 32, 32).astype(numpy.float32) for n in SIZES}

    def call(n):
        return session.run(None, {name: images[n]})

    for n in SIZES:
        call(n)
    return lambda: {n: timed(functools.partial(call, n)) for n in SIZES}


def main():
    p = argparse.ArgumentParser(description="our inference beside that of PyTorch and onnxruntime")
    p.add_argument("--jempp", default="build/jempp")
    p.add_argument("--model", default="wrn-16-2")
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    last = "channels_last"
    modes = {"jempp fp32": lambda: ours(a, "fp32"),
             "jempp bf16": lambda: ours(a, "bf16"),
             "onnxruntime": lambda: onnx_mode(a),
             "torch plain": lambda: torch_mode(a),
             "torch channels_last": lambda: torch_mode(a, last),
             "torch channels_last bf16": lambda: torch_mode(a, last, bf16=True),
             "torch channels_last compiled": lambda: torch_mode(a, last, compiled=True),
             "torch channels_last bf16 compiled": lambda: torch_mode(a, last, bf16=True, compiled=True)}
    measure, best = {}, {}
    for name, make in modes.items():
        try:
            measure[name] = make()
        except Exception as e:              # not installed, no compiler, a processor without bf16
            print(f"{name}: left out: {str(e).splitlines()[0][:150] if str(e) else type(e).__name__}", flush=True)
    for _ in range(a.rounds):
        for name in list(measure):
            try:
                found = measure[name]()
            except Exception as e:
                print(f"{name}: left out: {str(e).splitlines()[0][:150]}", flush=True)
                del measure[name]
                continue
            best[name] = {n: min(ms, best.get(name, found)[n]) for n, ms in found.items()}
    print(f"{a.model}, {a.device}, {a.threads} threads; ms per call (images per second)")
    print(f"{'images per call':34}" + "".join(f"{n:>22}" for n in SIZES))
    for name, row in best.items():
        cells = "".join(f"{row[n]:10.2f} ({1e3 * n / row[n]:9.1f})" for n in SIZES)
        print(f"{name:34}{cells}")


main()
