#!/usr/bin/env python3
"""bench_torch.py - one JEM++ training iteration on the CPU: ours against PyTorch's.

The same network, batch and number of threads; M sampling steps, then the three update batches
(cross-entropy, clean p(x), sampled) and one SGD step. PyTorch gets its best: the inner loop collapsed into
one move, no weight gradients while sampling, one backward pass a batch, fused optimiser arithmetic, memory
that stays with the process; no augmentation and no replay buffer, which ours includes. Rounds alternate
between the programs; a round counts with its median iteration, a program with its best round. Beside the time on
the clock stands the processor time of all threads, which other work on the machine changes less. PyTorch's
modes: plain, channels_last, bf16 autocast with channels_last, and the last two compiled, where
torch.compile works (it wants a C++ compiler). Ours: fp32, and bf16 where the processor has it.
One line per mode at the end has its best time and that time over ours in fp32 and in bf16.
"""
import argparse
import ctypes
import functools
import json
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F

from make_golden import Wrn, lse, move_statistics

M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1       # of glibc's mallopt


class Peer:
    def __init__(self, depth, width, batch, steps, layout=torch.contiguous_format, bf16=False, compiled=False):
        self.net = Wrn(depth, width).to(memory_format=layout)
        self.run = torch.compile(self.net) if compiled else self.net
        self.bf16 = bf16
        self.w = list(self.net.parameters())
        self.v = [torch.zeros_like(w) for w in self.w]
        self.steps = steps
        self.real, self.clean, self.start = (
            (torch.rand(batch, 3, 32, 32) * 2 - 1).contiguous(memory_format=layout) for _ in range(3))
        self.y = torch.randint(0, 10, (batch,))

    def logits(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            return self.run(x).float()

    def sample(self, x, inner=5, lr=0.2, clip=1):
        move_statistics(self.net, False)
        for w in self.w:
            w.requires_grad_(False)
        for _ in range(self.steps):
            x.requires_grad_()
            g, = torch.autograd.grad(lse(self.logits(x)).sum(), x)
            x = (x.detach() + inner * lr * g.clamp_(-clip, clip)).clamp_(-1, 1)
        for w in self.w:
            w.requires_grad_(True)
        return x

    def iteration(self):
        fake = self.sample(self.start)
        for w in self.w:
            w.grad = None
        lse(self.logits(fake)).mean().backward()
        move_statistics(self.net, True)
        F.cross_entropy(self.logits(self.real), self.y).backward()
        (-lse(self.logits(self.clean)).mean()).backward()
        with torch.no_grad():
            g = [w.grad for w in self.w]
            torch._foreach_add_(g, self.w, alpha=4e-4)
            torch._foreach_mul_(self.v, 0.9)
            torch._foreach_add_(self.v, g)
            torch._foreach_add_(self.w, self.v, alpha=-0.01)

    def round(self, iterations):
        clock, cpu = [], []
        for _ in range(iterations):
            start, used = time.perf_counter(), time.process_time()
            self.iteration()
            clock.append(1e3 * (time.perf_counter() - start))
            cpu.append(1e3 * (time.process_time() - used))
        return statistics.median(clock), statistics.median(cpu)


class Ours:
    def __init__(self, a, precision):
        self.cmd = [a.jempp, "bench", "--model", a.model, "--batch", str(a.batch), "--steps", str(a.steps),
                    "--device", "cpu", "--threads", str(a.threads), "--px", "clean", "--json",
                    "--precision", precision]

    def iteration(self):
        pass

    def round(self, iterations):
        done = subprocess.run(self.cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        found = json.loads(done.stdout)
        return found["iteration_ms"], found["iteration_cpu_ms"]     # medians too


def modes(a):
    depth, width = map(int, a.model.split("-")[1:])
    last = {"layout": torch.channels_last}
    peer = functools.partial(Peer, depth, width, a.batch, a.steps)
    yield "jempp fp32", lambda: Ours(a, "fp32")
    yield "jempp bf16", lambda: Ours(a, "bf16")
    yield "plain", peer
    yield "channels_last", lambda: peer(**last)
    yield "channels_last bf16", lambda: peer(**last, bf16=True)
    yield "channels_last compiled", lambda: peer(**last, compiled=True)
    yield "channels_last bf16 compiled", lambda: peer(**last, bf16=True, compiled=True)


def open_modes(a):
    peers = {}
    for name, make in modes(a):
        if a.only and name not in a.only.split(","):
            continue
        try:
            peer = make()
            peer.iteration()                # warm-up, and whether it works here
            if isinstance(peer, Ours):
                peer.round(1)
            peers[name] = peer
        except Exception as e:              # an old PyTorch, no compiler, a processor without bf16
            print(f"{name}: left out: {str(e).splitlines()[0][:150] if str(e) else type(e).__name__}", flush=True)
    return peers


def main():
    p = argparse.ArgumentParser(description="our training iteration against PyTorch's, on the CPU")
    p.add_argument("--jempp", default="build/jempp")
    p.add_argument("--model", default="wrn-16-2")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--iterations", type=int, default=3, help="of PyTorch, in a round")
    p.add_argument("--only", help="modes by name, with commas between")
    a = p.parse_args()
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)

    print(f"{a.model}, batch {a.batch}, {a.steps} sampling steps, {a.threads} threads, "
          f"PyTorch {torch.__version__}; ms per iteration", flush=True)
    peers = open_modes(a)
    times = {name: [] for name in peers}
    for i in range(a.rounds):
        for name, peer in peers.items():
            times[name].append(peer.round(a.iterations))
        print(f"round {i + 1}: " + ", ".join(f"{k} {v[-1][0]:.0f}" for k, v in times.items()), flush=True)
    for at, what in enumerate(("on the clock", "processor time")):
        best = {k: min(t[at] for t in v) for k, v in times.items()}
        print(f"\nms per iteration, {what}")
        for name, ms in best.items():
            ratios = "".join(f"  {ms / best[ours]:5.2f} x {ours}"
                             for ours in ("jempp fp32", "jempp bf16") if ours in best)
            print(f"{name:28} {ms:6.0f}{ratios}")


main()
