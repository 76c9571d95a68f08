#!/usr/bin/env python3
"""make_golden_eval.py [FOLDER] - writes eval.safetensors (default: tests/golden).

scikit-learn, a plain numpy calibration error and foolbox's attacks say what src/jem/metrics.c and
src/jem/attack.c must find; tests/test_eval.c compares. Needs numpy, scipy, scikit-learn, PyTorch 1.13 or newer
and foolbox 3.3 (pip). Integers are I32, logits and weights F16 (exact in every type), the rest F64.

Metrics, for CASE in the metadata's `cases`:
  CASE.z [n,classes], CASE.y [n]
  CASE.scores       top-1, top-5 (shares), NLL, Brier, ECE, MCE, class-wise ECE, temperature of least NLL (0: the
                    logits are too wild to have one worth comparing)
  CASE.bins         [20,3] count, mean confidence, accuracy (0 where empty) of the bins (lo, hi]
  CASE.confusion    [classes,classes], a row a true class
Detection, for CASE in `detections`:
  CASE.in, CASE.out the scores; CASE.detect: AUROC, average precision of in, of out, FPR at TPR >= 0.95
Attacks on a wrn-10-1 that was trained here on pictures of 8 x 8, batch statistics frozen, 200 images:
  w.NAME            weights and running statistics; x [200,3,8,8] U8, y [200]
  u [200,3,8,8] U8  in [-1, 1]: an attack within radius r (pixels in [0, 1]) begins at x + 2 r u in linf, at
                    x + 2 r u / sqrt(192) in l2, moved into [-1, 1]
  KIND.radii        what was tried; KIND.success [radii,200]: 1 where foolbox's last image is misread.
                    KIND: pgd-linf, pgd-l2, margin-linf (best wrong logit less the right one), margin-l2, fgsm-linf,
                    fgsm-l2 (from x itself). PGD takes `steps` (metadata) steps of 2.5 r / steps.
"""
import os
import sys

import eagerpy as ep
import foolbox as fb
import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from sklearn import metrics

import make_golden as golden

BINS, STEPS, IMAGES, CLASSES = 20, 10, 200, 10
rng = np.random.default_rng(5)


# ---- classification
def reference_ece(confidence, right):
    """Straight from the definition: bins (lo, hi], the first one with 0 too."""
    rows, ece, mce = [], 0.0, 0.0
    for b in range(BINS):
        lo, hi = b / BINS, (b + 1) / BINS
        inside = (confidence > lo) & (confidence <= hi)
        if b == 0:
            inside |= confidence <= lo
        n = inside.sum()
        c, a = (confidence[inside].mean(), right[inside].mean()) if n else (0.0, 0.0)
        rows.append([n, c, a])
        ece += n * abs(c - a) / len(confidence)
        mce = max(mce, abs(c - a))
    return ece, mce, rows


def temperature(z, y):
    def nll(t):
        return metrics.log_loss(y, softmax(z * np.exp(-t), 1), labels=range(z.shape[1]), eps=1e-300)
    return np.exp(minimize_scalar(nll, bounds=(-5, 5), method="bounded", options=dict(xatol=1e-10)).x)


def classification(out, case, z, y, fit=True):
    z16 = torch.from_numpy(z).half()
    z = z16.double().numpy()
    n, c = z.shape
    p = softmax(z, 1)
    top = z.argmax(1)
    nll = (logsumexp(z, 1) - z[np.arange(n), y]).mean()
    if np.abs(z).max() < 20:
        assert abs(nll - metrics.log_loss(y, p, labels=range(c))) < 1e-9
    brier = sum(metrics.brier_score_loss(y == k, p[:, k]) for k in range(c))
    ece, mce, bins = reference_ece(p[np.arange(n), top], top == y)
    classwise = np.mean([reference_ece(p[:, k], y == k)[0] for k in range(c)])
    order = np.argsort(-z, 1, kind="stable")
    top5 = (order[:, :5] == y[:, None]).any(1).mean()
    t = temperature(z, y) if fit else 0.0
    out[f"{case}.z"], out[f"{case}.y"] = z16, torch.from_numpy(y)
    out[f"{case}.scores"] = torch.tensor([metrics.accuracy_score(y, top), top5, nll, brier, ece, mce, classwise, t],
                                         dtype=torch.float64)
    out[f"{case}.bins"] = torch.tensor(bins, dtype=torch.float64)
    out[f"{case}.confusion"] = torch.from_numpy(metrics.confusion_matrix(y, top, labels=range(c)))


def classifications(out):
    def labels(n, c):
        return rng.integers(0, c, n)

    def learned(n, c, scale):
        y = labels(n, c)
        return rng.normal(size=(n, c)) * scale + 2 * (np.arange(c) == y[:, None]), y

    edges = np.full((120, 20), -1000.0)        # k equal logits: confidence 1/k, on an edge
    for i in range(120):
        edges[i, rng.permutation(20)[:(1, 2, 4, 5, 10, 20)[i % 6]]] = 3
    ties = rng.integers(-2, 3, (150, 7)).astype(float)
    wild = (rng.normal(size=(100, 10)) * 20000).clip(-6e4, 6e4)        # saturated
    classification(out, "plain", *learned(300, 10, 1.5))
    classification(out, "hundred", *learned(60, 100, 1))
    classification(out, "edges", edges, labels(120, 20), fit=False)
    classification(out, "ties", ties, labels(150, 7), fit=False)
    classification(out, "wild", wild, labels(100, 10), fit=False)
    classification(out, "equal", np.zeros((40, 10)), labels(40, 10), fit=False)
    classification(out, "one", *learned(1, 2, 1), fit=False)
    return ["plain", "hundred", "edges", "ties", "wild", "equal", "one"]


# ---- detection
def detection(out, case, inside, outside):
    y = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    s = np.r_[inside, outside]
    fpr, tpr, _ = metrics.roc_curve(y, s, drop_intermediate=False)
    out[f"{case}.in"], out[f"{case}.out"] = (torch.from_numpy(np.asarray(v, float)) for v in (inside, outside))
    out[f"{case}.detect"] = torch.tensor(
        [metrics.roc_auc_score(y, s), metrics.average_precision_score(y, s),
         metrics.average_precision_score(1 - y, -s), fpr[tpr >= 0.95].min()], dtype=torch.float64)


def detections(out):
    a, b = rng.normal(1, 1, 250), rng.normal(0, 2, 180)
    detection(out, "normal", a, b)
    detection(out, "tied", a.round(0), b.round(0))
    detection(out, "saturated", np.minimum(1, a + 0.5), np.minimum(1, b + 0.5))
    detection(out, "constant", np.full(30, 0.25), np.full(50, 0.25))
    detection(out, "apart", np.arange(20) + 100.0, np.arange(20) * 1.0)
    detection(out, "wrong", np.arange(20) * 1.0, np.arange(20) + 100.0)
    detection(out, "extreme", np.r_[1e300, -1e300, 1e-300, 0, a[:20]], np.r_[1e300, -1e300, -1e-300, 0, b[:20]])
    detection(out, "few", [0.5], [0.25])
    detection(out, "uneven", a[:3], np.r_[b, b + 0.1])
    detection(out, "twenty", np.arange(20.0), np.arange(20.0) - 0.5)      # 95 % of 20 is exactly 19
    return ["normal", "tied", "saturated", "constant", "apart", "wrong", "extreme", "few", "uneven", "twenty"]


# ---- attacks
def pictures():
    """Ten kinds of blurred blobs under noise: learnt in seconds, and none too surely."""
    g = torch.Generator().manual_seed(1)
    kinds = F.interpolate(torch.randn(CLASSES, 3, 3, 3, generator=g), 8, mode="bilinear", align_corners=False)
    y = torch.arange(2000) % CLASSES
    x = 110 + 30 * kinds[y] + 32 * torch.randn(2000, 3, 8, 8, generator=g)
    return x.clamp(0, 255).round().to(torch.uint8), y


def train(x, y):
    torch.manual_seed(2)
    net = golden.Wrn(classes=CLASSES)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for step in range(300):
        at = torch.randint(IMAGES, len(x), (64,))
        opt.zero_grad()
        F.cross_entropy(net(golden.pixels(x[at]).float()), y[at]).backward()
        opt.step()
    w = {k: v.half() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    return w, golden.make(w).float().eval()


class Given:
    """What our attacks share with foolbox's: the start, and on demand the margin loss."""
    def get_random_start(self, x0, epsilon):
        size = epsilon * self.u / (1 if self.linf else self.u[0].numel() ** 0.5)
        return ep.astensor((x0.raw + size).clamp(-1, 1))

    def get_loss_fn(self, model, labels):
        if not self.margin:
            return super().get_loss_fn(model, labels)

        def loss(inputs):
            z, y = model(inputs).raw, labels.raw
            own = F.one_hot(y, z.shape[1]).bool()
            return ep.astensor((z.masked_fill(own, -torch.inf).max(1)[0] - z[own]).sum())
        return loss


class Linf(Given, fb.attacks.LinfPGD):
    linf = True


class L2(Given, fb.attacks.L2PGD):
    linf = False


def attacks(out):
    x, y = pictures()
    w, net = train(x, y)
    x, y = x[:IMAGES], y[:IMAGES]
    u = torch.randint(0, 256, x.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    out.update({f"w.{k}": v for k, v in w.items()})
    out.update(x=x, y=y, u=u)
    model = fb.PyTorchModel(net, bounds=(-1, 1), device="cpu")
    pixels, start = golden.pixels(x).float(), golden.pixels(u).float()
    print("clean accuracy", (net(pixels).argmax(1) == y).float().mean().item())
    radii = dict(linf=[4 / 255, 8 / 255, 12 / 255, 16 / 255], l2=[0.1, 0.2, 0.4, 0.8])
    for norm in "linf", "l2":
        for kind in "pgd", "margin", "fgsm":
            if kind == "fgsm":
                attack = (fb.attacks.LinfFastGradientAttack if norm == "linf" else fb.attacks.L2FastGradientAttack)(
                    random_start=False)
            else:
                attack = (Linf if norm == "linf" else L2)(rel_stepsize=2.5 / STEPS, steps=STEPS, random_start=True)
                attack.u, attack.margin = start, kind == "margin"
            _, _, success = attack(model, pixels, y, epsilons=[2 * r for r in radii[norm]])
            out[f"{kind}-{norm}.radii"] = torch.tensor(radii[norm], dtype=torch.float64)
            out[f"{kind}-{norm}.success"] = success.long()
            print(f"{kind}-{norm}: accuracy", *(f"{100 * (1 - s.float().mean()):.1f}" for s in success))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/golden")
    torch.set_num_threads(1)
    out = {}
    meta = dict(cases=",".join(classifications(out)), detections=",".join(detections(out)), steps=str(STEPS))
    attacks(out)
    golden.write(os.path.join(folder, "eval.safetensors"), out, meta)


if __name__ == "__main__":
    main()
