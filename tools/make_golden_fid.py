#!/usr/bin/env python3
"""make_golden_fid.py [FOLDER] - writes fid.safetensors (default: tests/golden).

pytorch-fid, torch-fidelity and prdc say what src/jem/fid.c must find; tests/test_fid.c makes the same
features and compares. Needs numpy, scipy, scikit-learn, prdc, pytorch-fid, torch-fidelity, safetensors and
PyTorch (pip).

Features come from the random numbers of src/base/rng.h (seed 7, stream RNG_TEST, step WHICH), u(i) in [0, 1):
  x[i][j] = float32(shift + u(i dim + j)^2 + 0.5 u(i dim))
For CASE in the metadata's `cases`:
  CASE.shape  [n, m, dim, which of x, which of y]; y has shift 0.1, x has 0
  CASE.found  FID (pytorch-fid; by singular values where a covariance is singular), KID with one subset of all
              (torch-fidelity; 0 where n is not m), precision, recall, density, coverage (prdc, k = 5)
For CASE in `scores`: CASE.shape [n, classes, which], logits 6 u(i classes + j)^2; CASE.found: mean and
standard deviation of the Inception Score of 10 splits, unshuffled (torch-fidelity).
"""
import os
import sys

import numpy as np
import torch
from prdc import compute_prdc
from pytorch_fid.fid_score import calculate_frechet_distance
from safetensors.numpy import save_file
from torch_fidelity.metric_isc import isc_features_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric

RNG_TEST = 16
MASK = np.uint64(0xFFFFFFFF)


def uniform(which, n):
    """rng_uniform of elements 0 .. n-1 of { .seed = 7, .stream = RNG_TEST, .step = which }."""
    blocks = (n + 3) // 4
    c = [np.arange(blocks, dtype=np.uint64), np.full(blocks, which, np.uint64), np.zeros(blocks, np.uint64),
         np.full(blocks, RNG_TEST, np.uint64)]
    k0, k1 = 7, 0
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), b & MASK, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), a & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    u = np.stack(c, 1).reshape(-1)[:n]
    return (u >> np.uint64(8)).astype(np.float64) * 2.0**-24


def features(which, n, dim, shift):
    u = uniform(which, n * dim).reshape(n, dim)
    return (shift + u * u + 0.5 * u[:, :1]).astype(np.float32)


def root(cov):
    values, vectors = np.linalg.eigh(cov)
    return vectors * np.sqrt(np.maximum(values, 0))


def frechet(x, y):
    mx, my, a, b = x.mean(0), y.mean(0), np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    exact = ((mx - my)**2).sum() + np.trace(a) + np.trace(b) - 2 * np.linalg.svd(
        root(a).T @ root(b), compute_uv=False).sum()
    if min(len(x), len(y)) <= x.shape[1]:
        return exact
    theirs = calculate_frechet_distance(mx, a, my, b)
    assert abs(theirs - exact) < 1e-8 * exact, (theirs, exact)
    return theirs


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/golden")
    tensors = {}
    cases = {"small": (200, 150, 13, 1, 2), "equal": (300, 300, 64, 3, 4), "chunks": (1203, 1203, 20, 5, 6),
             "few": (30, 200, 64, 7, 8), "both-few": (40, 25, 64, 9, 10)}
    for name, (n, m, dim, which_x, which_y) in cases.items():
        x = features(which_x, n, dim, 0).astype(np.float64)
        y = features(which_y, m, dim, 0.1).astype(np.float64)
        kid = kid_features_to_metric(torch.tensor(x), torch.tensor(y), kid_subsets=1, kid_subset_size=n,
                                     verbose=False)["kernel_inception_distance_mean"] if n == m else 0
        p = compute_prdc(x, y, 5)
        tensors[name + ".shape"] = np.array([n, m, dim, which_x, which_y], np.int32)
        tensors[name + ".found"] = np.array([frechet(x, y), kid, p["precision"], p["recall"], p["density"],
                                             p["coverage"]])
        print(name, tensors[name + ".found"])
    scores = {"is": (403, 20, 11), "is-wide": (100, 1008, 12)}
    for name, (n, classes, which) in scores.items():
        z = (6 * uniform(which, n * classes)**2).astype(np.float32).reshape(n, classes)
        s = isc_features_to_metric(torch.tensor(z), 10, False)
        tensors[name + ".shape"] = np.array([n, classes, which], np.int32)
        tensors[name + ".found"] = np.array([s["inception_score_mean"], s["inception_score_std"]])
        print(name, tensors[name + ".found"])
    save_file(tensors, os.path.join(out, "fid.safetensors"),
              {"cases": ",".join(cases), "scores": ",".join(scores)})


if __name__ == "__main__":
    main()
