#!/usr/bin/env python3
"""bench_torch.py - one JEM++ training iteration on the CPU: ours against PyTorch's.

The same network, batch and number of threads; M sampling steps, then the three update batches
(cross-entropy, clean p(x), sampled) and one SGD step. PyTorch gets its best: the inner loop collapsed into
one move, no weight gradients while sampling, one backward pass a batch, fused optimiser arithmetic, memory
that stays with the process; no augmentation and no replay buffer, which ours includes. Rounds alternate
between the programs; a round counts with its median iteration, a program with its best round.
The last line is `ratio plain R channels_last R`, PyTorch's time over ours.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from make_golden import Wrn, lse, move_statistics

M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1       # of glibc's mallopt


class Peer:
    def __init__(self, depth, width, batch, steps, layout):
        self.net = Wrn(depth, width).to(memory_format=layout)
        self.w = list(self.net.parameters())
        self.v = [torch.zeros_like(w) for w in self.w]
        self.steps = steps
        self.real, self.clean, self.start = (
            (torch.rand(batch, 3, 32, 32) * 2 - 1).contiguous(memory_format=layout) for _ in range(3))
        self.y = torch.randint(0, 10, (batch,))

    def sample(self, x, inner=5, lr=0.2, clip=1):
        move_statistics(self.net, False)
        for w in self.w:
            w.requires_grad_(False)
        for _ in range(self.steps):
            x.requires_grad_()
            g, = torch.autograd.grad(lse(self.net(x)).sum(), x)
            x = (x.detach() + inner * lr * g.clamp_(-clip, clip)).clamp_(-1, 1)
        for w in self.w:
            w.requires_grad_(True)
        return x

    def iteration(self):
        fake = self.sample(self.start)
        for w in self.w:
            w.grad = None
        lse(self.net(fake)).mean().backward()
        move_statistics(self.net, True)
        F.cross_entropy(self.net(self.real), self.y).backward()
        (-lse(self.net(self.clean)).mean()).backward()
        with torch.no_grad():
            g = [w.grad for w in self.w]
            torch._foreach_add_(g, self.w, alpha=4e-4)
            torch._foreach_mul_(self.v, 0.9)
            torch._foreach_add_(self.v, g)
            torch._foreach_add_(self.w, self.v, alpha=-0.01)

    def round(self, iterations):
        times = []
        for _ in range(iterations):
            start = time.perf_counter()
            self.iteration()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)


def our_round(a):
    cmd = [a.jempp, "bench", "--model", a.model, "--batch", str(a.batch), "--steps", str(a.steps),
           "--device", "cpu", "--threads", str(a.threads), "--px", "clean", "--json"]
    done = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode:
        sys.exit(f"{' '.join(cmd)}: {done.stderr}")
    return json.loads(done.stdout)["iteration_ms"]      # a median too


def main():
    p = argparse.ArgumentParser(description="our training iteration against PyTorch's, on the CPU")
    p.add_argument("--jempp", default="build/jempp")
    p.add_argument("--model", default="wrn-16-2")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--iterations", type=int, default=3, help="of PyTorch, in a round")
    a = p.parse_args()
    depth, width = map(int, a.model.split("-")[1:])
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)

    peers = {"plain": torch.contiguous_format, "channels_last": torch.channels_last}
    peers = {name: Peer(depth, width, a.batch, a.steps, layout) for name, layout in peers.items()}
    times = {"jempp": [], **{name: [] for name in peers}}
    for peer in peers.values():
        peer.iteration()                    # warm-up
    print(f"{a.model}, batch {a.batch}, {a.steps} sampling steps, {a.threads} threads, "
          f"PyTorch {torch.__version__}; ms an iteration")
    for i in range(a.rounds):
        times["jempp"].append(our_round(a))
        for name, peer in peers.items():
            times[name].append(peer.round(a.iterations))
        print(f"round {i + 1}: " + ", ".join(f"{k} {v[-1]:.0f}" for k, v in times.items()), flush=True)
    best = {k: min(v) for k, v in times.items()}
    print("best: " + ", ".join(f"{k} {v:.0f}" for k, v in best.items()))
    print("ratio " + " ".join(f"{name} {best[name] / best['jempp']:.2f}" for name in peers))


main()
