#!/usr/bin/env python3
"""bench_predict.py [MODEL] - time to classify images that are in memory, on the CPU: ours against PyTorch eager.

Needs PyTorch and the installed package jempp (pip install .). The same weights and threads; batches as they are, no
padding. Calls alternate; the processor time of the fastest of 30 counts, so that other work on the machine matters
little; with more than one thread it is wall-clock time. The results of both must agree.
"""
import argparse
import time

import numpy as np
import torch

import jempp
import jempp.torch


def fastest(functions, clock, rounds=30):
    best = [float("inf")] * len(functions)
    for i in range(rounds + 3):                     # three to warm up
        for k, f in enumerate(functions):
            start = clock()
            f()
            if i >= 3:
                best[k] = min(best[k], clock() - start)
    return [1e3 * t for t in best]


def main():
    p = argparse.ArgumentParser(description="time to classify images on the CPU: jempp and PyTorch eager")
    p.add_argument("model", nargs="?", default="models/cifar10-wrn-16-4.safetensors")
    p.add_argument("--batches", default="1,4,16,64")
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    ours, theirs = jempp.open(a.model, device="cpu", threads=a.threads), jempp.torch.load(a.model).eval()
    clock = time.thread_time if a.threads == 1 else time.perf_counter
    print(f"{a.model}, {a.threads} threads, PyTorch {torch.__version__}; ms per batch")
    for batch in map(int, a.batches.split(",")):
        x = np.random.default_rng(0).random((batch, ours.channels, ours.side, ours.side), dtype=np.float32)
        t = torch.from_numpy(x)
        with torch.inference_mode():
            apart = np.abs(ours.logits(x) - theirs(t).numpy()).max()
            mine, others = fastest([lambda: ours.logits(x), lambda: theirs(t)], clock)
        assert apart < 1e-3, f"logits differ by {apart}"
        print(f"batch {batch:3}: jempp {mine:8.2f}  PyTorch {others:8.2f}  faster by {others / mine:.2f}", flush=True)


if __name__ == "__main__":
    main()
