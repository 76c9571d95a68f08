#!/usr/bin/env python3
"""make_golden.py [FOLDER] - writes net.safetensors and iterate.safetensors (default: tests/golden).

PyTorch, in double precision, says what the network, its gradients and ten training iterations must
be; the C tests compare by name. Needs PyTorch 1.13 or newer and nothing else.

All nets are wrn-10-1 with 10 classes, batches of 6. Pictures stored as bytes v mean v / 127.5 - 1.
Integers are I32, the rest F64 but for the weights: F16, exact in every type. Of a tensor with more than
`thin_above` elements (metadata) a gradient keeps the elements 0, thin, 2 thin, ... of the flat tensor.

net.safetensors
  w.NAME                 weights and running statistics by state-dict name, for norm = batch, 3x3 stem,
                         3 channels. norm = none takes those of them that it has.
  stem4.w.f.conv1.*      replaces the stem's: 4x4, stride 2, 1 channel; the rest is as above.
  batch.x [6,3,8,8] U8, none.x the same bytes, stem4.x [6,1,12,12] U8, y [6]
  For CASE = batch, none (no statistics: train alone), stem4 (batch norm), MODE = train (batch statistics)
  or eval (running ones as stored, biases included):
  CASE.MODE.logits       [6,10]
  CASE.MODE.dx           gradient of sum LSE(logits) by the images
  CASE.MODE.dw.NAME      gradient of mean(a LSE + b z[y] + c LSE^2); a, b, c are metadata. Biases that batch
                         statistics cancel have 0 exactly.
  CASE.stat.NAME         running mean and variance after one train pass, momentum 0.1
  CASE.sgd, CASE.adam    [6] cross-entropy in train mode before steps 1 to 5 and after the last, always on
                         the same batch. sgd: lr 0.1 (none: 0.01), momentum 0.9, decay 4e-4. adam: lr 1e-3,
                         betas 0.9 and 0.999, eps 1e-8, decay 4e-4 (added to the gradient).
  CASE.muon              [6] the same (not none): the filters but the stem's by steps of 0.1 along the
                         orthogonalised gradient, momentum 0.9; the rest by sgd.

iterate.safetensors: ten iterations from the weights w.NAME above, 8x8 pictures, 3 channels
  real, clean, start     [10,6,3,8,8] U8: pictures for cross-entropy, for p(x), fresh chain starts
  y [10,6], slot [10,6], fresh [10,6]    labels; buffer slots (distinct in a row); 1: start from `start`
  buffer                 [12,3,8,8] U8: the buffer at the beginning
  For SYSTEM = jempp, jem, softmax, sam, few:
  SYSTEM.log             [10,4] CE(real), mean LSE(clean), mean LSE(sampled), loss; softmax: CE, 0, 0, CE
  SYSTEM.buffer          [12,3,8,8] the buffer at the end (not softmax)
  SYSTEM.sum.NAME        [2] sum and sum of squares of the weights at the end
  SYSTEM.stat.NAME       running statistics at the end (not jem)
  One iteration: sample from the slots, or from `start` where fresh; loss = CE(real) - (mean LSE(clean)
  - mean LSE(sampled)), each of the three a batch of its own; one optimiser step; samples to the slots.
  Running statistics move in the passes over `real`, then over `clean`, with momentum 0.1, never elsewhere.
  jempp: norm batch; PYLD with M = 3 gradients, N = 2 moves of 4 times each, clipped to +-0.02, pixels
         clamped to [-1, 1], no noise; SGD lr 0.01, momentum 0.9, decay 4e-4. (So small a net has small
         gradients: with 0.2 and +-1 nothing would be clipped.)
  jem:   norm none; SGLD, 4 steps of 1, no clip, no clamp, no noise; Adam lr 1e-4, no decay.
  softmax: norm batch; CE(real) alone; SGD as jempp.
  sam:   as jempp but with moves of 0.5 times each gradient (longer ones pass kinks of the net, where single
         precision may take the other side), and the step's gradient is the one at w + 0.5 w^2 g / |w g|, g being
         the gradient at w. There statistics do not move, and the log says what was found at w.
  few:   as sam, but g, log and statistics are of the first 4 pictures of each batch.
"""
import copy
import json
import os
import random
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CLASSES, STEPS, SLOTS = 6, 10, 10, 12
TERM = dict(a=0.5, b=-1.0, c=0.05)
THIN, THIN_ABOVE = 7, 1000
SAM = 0.5
rng = random.Random(20)         # Python's own: the same numbers in every version of everything


class Block(nn.Module):
    def __init__(self, cin, cout, stride, norm):
        super().__init__()
        self.bn1, self.bn2 = norm(cin), norm(cout)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, stride=stride, padding=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut.append(nn.Conv2d(cin, cout, 1, stride=stride))

    def forward(self, x):
        h = self.conv1(F.leaky_relu(self.bn1(x), 0.2))
        return self.conv2(F.leaky_relu(self.bn2(h), 0.2)) + self.shortcut(x)


class Features(nn.Module):
    def __init__(self, depth, width, channels, norm, stem):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, stem, stride=2 if stem == 4 else 1, padding=1)
        cin = 16
        for g, stride in (1, 1), (2, 2), (3, 2):
            cout = 16 * width << (g - 1)
            blocks = []
            for i in range((depth - 4) // 6):
                blocks.append(Block(cin, cout, stride if i == 0 else 1, norm))
                cin = cout
            setattr(self, f"layer{g}", nn.Sequential(*blocks))
        self.bn1 = norm(cin)

    def tail(self, h):          # everything but the stem
        h = self.layer3(self.layer2(self.layer1(h)))
        return F.leaky_relu(self.bn1(h), 0.2).mean((2, 3))

    def forward(self, x):
        return self.tail(self.conv1(x))


class Wrn(nn.Module):
    def __init__(self, depth=10, width=1, channels=3, classes=CLASSES, norm=nn.BatchNorm2d, stem=3):
        super().__init__()
        self.f = Features(depth, width, channels, norm, stem)
        self.class_output = nn.Linear(64 * width, classes)

    def forward(self, x):
        return self.class_output(self.f(x))


def no_norm(channels):
    return nn.Identity()


# ---- numbers that are exact in F16 and in bytes
def fill(shape, draw):
    t = torch.empty(shape, dtype=torch.float64)
    t.view(-1)[:] = torch.tensor([draw() for _ in range(t.numel())], dtype=torch.float64)
    return t.half()


def draw_weights(net):
    w = {}
    for name, t in net.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        if t.dim() > 1:
            sd = (1.5 / t[0].numel()) ** 0.5
            w[name] = fill(t.shape, lambda: rng.gauss(0, sd))
        elif name.endswith("running_var") or ".bn" in name and name.endswith("weight"):
            w[name] = fill(t.shape, lambda: rng.uniform(0.5, 1.5))
        else:
            w[name] = fill(t.shape, lambda: rng.gauss(0, 0.2))
    return w


def pictures(*shape):
    t = torch.empty(shape, dtype=torch.uint8)
    t.view(-1)[:] = torch.tensor([rng.randrange(256) for _ in range(t.numel())], dtype=torch.uint8)
    return t


def pixels(x):
    return x.double() / 127.5 - 1


# ---- what is compared
def make(w, **how):
    net = Wrn(**how).double()
    mine = net.state_dict()
    net.load_state_dict({k: w[k].double() if k in w else v for k, v in mine.items()})
    return net


def lse(z):
    return torch.logsumexp(z, 1)


def move_statistics(net, yes):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.1 if yes else 0.0


def gradients(net, loss):
    lost = net.training and isinstance(net.f.bn1, nn.BatchNorm2d)
    params = dict(net.named_parameters())
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    for name, g in grads.items():
        if lost and name.endswith("bias") and ("conv" in name or "shortcut" in name):
            assert g.abs().max() < 1e-9, name
            g.zero_()
    return grads


def step(net, opt, loss, again=None):
    """again: adaptive SAM. The loss as a function, asked a second time from uphill."""
    grads = gradients(net, loss)
    if again:
        w = {name: p.detach().clone() for name, p in net.named_parameters()}
        length = torch.sqrt(sum(((w[name] * g) ** 2).sum() for name, g in grads.items()))
        with torch.no_grad():
            for name, p in net.named_parameters():
                p += SAM * w[name] ** 2 * grads[name] / length
        move_statistics(net, False)
        grads = gradients(net, again())
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.copy_(w[name])
    for name, p in net.named_parameters():
        p.grad = grads[name]
    opt.step()


def statistics(net):
    return {k: v.clone() for k, v in net.state_dict().items() if "running" in k}


def thin(t):
    return t if t.numel() <= THIN_ABOVE else t.reshape(-1)[::THIN]


def one_mode(out, at, net, x, y):
    x = x.clone().requires_grad_()
    z = net(x)
    out[f"{at}.logits"] = z
    out[f"{at}.dx"], = torch.autograd.grad(lse(z).sum(), x, retain_graph=True)
    e = lse(z)
    zy = z.gather(1, y[:, None])[:, 0]
    loss = (TERM["a"] * e + TERM["b"] * zy + TERM["c"] * e * e).mean()
    for name, g in gradients(net, loss).items():
        out[f"{at}.dw.{name}"] = thin(g)


class Muon:
    """Filters but the stem's: momentum of Nesterov's kind; Newton and Schulz's iteration, five rounds; a step
    of `rate` times the filter's length, which is then restored. The rest: SGD."""
    def __init__(self, net, rate, momentum, **how):
        self.rate, self.momentum = rate, momentum
        self.filters = [p for name, p in net.named_parameters() if p.dim() == 4 and name != "f.conv1.weight"]
        ids = {id(p) for p in self.filters}
        self.velocity = [torch.zeros_like(p) for p in self.filters]
        self.rest = torch.optim.SGD([p for p in net.parameters() if id(p) not in ids], momentum=momentum, **how)

    @torch.no_grad()
    def step(self):
        self.rest.step()
        for p, v in zip(self.filters, self.velocity):
            v.mul_(self.momentum).add_(p.grad)
            x = (p.grad + self.momentum * v).flatten(1)
            x = x / x.norm()
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
            moved = p - self.rate * p.norm() * (x / x.norm()).view_as(p)
            p.copy_(moved * (p.norm() / moved.norm()))


def five_steps(net, x, y, optimiser, **how):
    net = copy.deepcopy(net).train()
    opt = Muon(net, **how) if optimiser is Muon else optimiser(net.parameters(), **how)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(net(x), y)
        losses.append(loss.detach())
        step(net, opt, loss)
    return torch.stack(losses)


def net_file(w):
    out = {f"w.{k}": v for k, v in w.items()}
    out["y"] = y = torch.tensor([rng.randrange(CLASSES) for _ in range(BATCH)])
    stem4 = fill((16, 1, 4, 4), lambda: rng.gauss(0, 0.3)), fill((16,), lambda: rng.gauss(0, 0.2))
    out["stem4.w.f.conv1.weight"], out["stem4.w.f.conv1.bias"] = stem4
    w4 = dict(w, **{"f.conv1.weight": stem4[0], "f.conv1.bias": stem4[1]})
    color, grey = pictures(BATCH, 3, 8, 8), pictures(BATCH, 1, 12, 12)
    cases = [("batch", color, make(w)), ("none", color, make(w, norm=no_norm)),
             ("stem4", grey, make(w4, channels=1, stem=4))]
    for case, x, net in cases:
        out[f"{case}.x"] = x
        x = pixels(x)
        if case != "none":
            one_mode(out, f"{case}.eval", net.eval(), x, y)
        lr = 0.01 if case == "none" else 0.1
        out[f"{case}.sgd"] = five_steps(net, x, y, torch.optim.SGD, lr=lr, momentum=0.9, weight_decay=4e-4)
        out[f"{case}.adam"] = five_steps(net, x, y, torch.optim.Adam, lr=1e-3, weight_decay=4e-4)
        if case != "none":
            out[f"{case}.muon"] = five_steps(net, x, y, Muon, rate=0.1, momentum=0.9, lr=0.1, weight_decay=4e-4)
        one_mode(out, f"{case}.train", net.train(), x, y)
        for name, s in statistics(net).items():
            out[f"{case}.stat.{name}"] = s
    return out


# ---- iterations
clipped = []                    # which part of each gradient was


def pyld(net, x, M=3, N=2, s=4.0, eps=0.02):
    """As the paper writes it: the stem's part of the gradient is taken anew for each inner move."""
    closed = x
    for _ in range(M):
        h = net.f.conv1(x).detach().requires_grad_()
        p, = torch.autograd.grad(lse(net.class_output(net.f.tail(h))).sum(), h)
        for _ in range(N):
            xi = x.clone().requires_grad_()
            g, = torch.autograd.grad(net.f.conv1(xi), xi, p)
            clipped.append((g.abs() > eps).double().mean().item())
            x = (x + s * g.clamp(-eps, eps)).clamp(-1, 1)
        closed = (closed + N * s * g.clamp(-eps, eps)).clamp(-1, 1)     # the inner loop in one move
    assert (x - closed).abs().max() < 1e-12
    return x


def sgld(net, x, K=4, s=1.0):
    for _ in range(K):
        x = x.clone().requires_grad_()
        g, = torch.autograd.grad(lse(net(x)).sum(), x)
        x = (x + s * g).detach()
    return x


def ten_iterations(out, system, net, opt, sampler, given, sam=False, few=BATCH):
    net.train()
    buffer, log = pixels(given["buffer"]), []
    for i in range(STEPS):
        real, clean, start = (pixels(given[k][i]) for k in ("real", "clean", "start"))
        y, slot, fresh = given["y"][i], given["slot"][i], given["fresh"][i]
        move_statistics(net, False)
        if sampler:
            fake = sampler(net, torch.where(fresh[:, None, None, None] == 1, start, buffer[slot]))
            e_fake = lse(net(fake[:few])).mean()
        move_statistics(net, True)
        loss = ce = F.cross_entropy(net(real[:few]), y[:few])
        if sampler:
            e_real = lse(net(clean[:few])).mean()
            loss = ce - (e_real - e_fake)
            buffer[slot] = fake
        log.append([float(v) for v in ((ce, e_real, e_fake, loss) if sampler else (ce, 0, 0, loss))])
        step(net, opt, loss, sam and (lambda: F.cross_entropy(net(real), y) - lse(net(clean)).mean() +
                                      lse(net(fake)).mean()))
    out[f"{system}.log"] = torch.tensor(log, dtype=torch.float64)
    if sampler:
        out[f"{system}.buffer"] = buffer
    for name, p in net.named_parameters():
        out[f"{system}.sum.{name}"] = torch.stack([p.sum(), (p * p).sum()])
    for name, s in statistics(net).items():
        out[f"{system}.stat.{name}"] = s


def iterate_file(w):
    def ints(draw):
        return torch.tensor([[draw() for _ in range(BATCH)] for _ in range(STEPS)])

    def sgd(net):
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-4)

    given = {k: pictures(STEPS, BATCH, 3, 8, 8) for k in ("real", "clean", "start")}
    given["buffer"] = pictures(SLOTS, 3, 8, 8)
    given["y"] = ints(lambda: rng.randrange(CLASSES))
    given["fresh"] = ints(lambda: int(rng.random() < 0.2))
    given["slot"] = torch.tensor([rng.sample(range(SLOTS), BATCH) for _ in range(STEPS)])
    out = dict(given)
    net = make(w)
    ten_iterations(out, "jempp", net, sgd(net), pyld, given)
    net = make(w, norm=no_norm)
    ten_iterations(out, "jem", net, torch.optim.Adam(net.parameters(), lr=1e-4), sgld, given)
    net = make(w)
    ten_iterations(out, "softmax", net, sgd(net), None, given)
    net = make(w)
    ten_iterations(out, "sam", net, sgd(net), lambda net, x: pyld(net, x, s=0.5), given, sam=True)
    net = make(w)
    ten_iterations(out, "few", net, sgd(net), lambda net, x: pyld(net, x, s=0.5), given, sam=True, few=4)
    return out


# ---- safetensors: a length, a JSON header, the bytes
TYPES = {torch.float64: ("F64", "d"), torch.float16: ("F16", "e"), torch.uint8: ("U8", "B"),
         torch.int64: ("I32", "i")}


def write(path, tensors, meta):
    header = {"__metadata__": meta}
    data = b""
    for name, t in tensors.items():
        dtype, code = TYPES[t.dtype]
        values = t.detach().reshape(-1).tolist()
        raw = struct.pack(f"<{len(values)}{code}", *values)
        header[name] = dict(dtype=dtype, shape=list(t.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    print(f"{path}: {len(tensors)} tensors, {os.path.getsize(path)} bytes")


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/golden")
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    meta = dict({k: repr(v) for k, v in TERM.items()}, thin=str(THIN), thin_above=str(THIN_ABOVE))
    w = draw_weights(Wrn())
    write(os.path.join(folder, "net.safetensors"), net_file(w), meta)
    out = iterate_file(w)
    write(os.path.join(folder, "iterate.safetensors"), out, meta)
    print(f"{100 * sum(clipped) / len(clipped):.1f} % of the sampling gradients were clipped")
    for system in "jempp", "jem", "softmax", "sam", "few":
        print(system, *("%.4f" % v for v in out[f"{system}.log"][:, 3]))


if __name__ == "__main__":
    main()
