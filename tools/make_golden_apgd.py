#!/usr/bin/env python3
"""make_golden_apgd.py [FOLDER] - writes apgd.safetensors (default: tests/golden).

AutoAttack's own code (pyautoattack 0.2.0 from PyPI) attacks the network and the 200 images of
eval.safetensors in the same folder; tests/test_eval.c compares src/jem/apgd.c with it. Needs
PyTorch 2 and pyautoattack. Everything is I32 but radii and losses.

  NORM.radius       for NORM = linf, l2; pixels in [0, 1]
  NORM.ce [200]     1 where APGD-CE breaks an image, or where it is misclassified as it is
  NORM.all [200]    1 where APGD-CE does, or after it targeted APGD-DLR with nine targets
  NORM.ce.loss, NORM.target.loss [200] F64  the highest loss on the path of each image, attacked alone
                    with APGD-CE, and with the class of the fourth highest logit as APGD-DLR's target
Every attack starts at x + radius u in linf and at x + radius u / sqrt(192) in l2, moved into the
box, with u of eval.safetensors; `steps` (metadata) iterations.
"""
import json
import os
import struct
import sys

import numpy as np
import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted

import make_golden as golden

STEPS, RADII = 100, dict(linf=12 / 255, l2=0.4)
TYPES = dict(F16=np.float16, F64=np.float64, I32=np.int32, U8=np.uint8)


def read(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__")
    return {name: torch.from_numpy(np.frombuffer(data[slice(*t["data_offsets"])], TYPES[t["dtype"]])
                                   .reshape(t["shape"]).copy()) for name, t in header.items()}


def key(image):
    return image.numpy().tobytes()


class FromGivenStarts:
    """perturb() keeps the images that are left; their starts are found by their pixels."""
    def attack_single_run(self, x, y, x_init=None):
        return super().attack_single_run(x, y, torch.stack([self.starts[key(i)] for i in x]))


class Ce(FromGivenStarts, APGDAttack):
    pass


class Targeted(FromGivenStarts, APGDAttack_targeted):
    pass


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../tests/golden")
    torch.set_num_threads(1)
    given = read(os.path.join(folder, "eval.safetensors"))
    net = golden.make({k[2:]: v for k, v in given.items() if k.startswith("w.")}).float().eval()
    x, y = given["x"].float() / 255, given["y"].long()
    u = golden.pixels(given["u"]).float()

    def predict(v):
        return net(2 * v - 1)

    out = {}
    for norm, radius in RADII.items():
        start = (x + radius * u / (1 if norm == "linf" else u[0].numel() ** 0.5)).clamp(0, 1)
        how = dict(n_iter=STEPS, norm=dict(linf="Linf", l2="L2")[norm], eps=radius, device="cpu")
        broken = torch.zeros(len(x), dtype=torch.bool)
        out[f"{norm}.radius"] = torch.tensor([radius], dtype=torch.float64)
        for name, attack in ("ce", Ce(predict, **how)), ("all", Targeted(predict, n_target_classes=9, **how)):
            attack.starts = {key(i): s for i, s in zip(x, start)}
            with torch.no_grad():
                left = (~broken).nonzero().squeeze(1)
                found = attack.perturb(x[left], y[left])
                broken[left] = predict(found).argmax(1) != y[left]
            out[f"{norm}.{name}"] = broken.long()
            if name == "all":
                name, attack.y_target = "target", predict(x).sort(dim=1)[1][:, -4]
            with torch.no_grad():
                out[f"{norm}.{name}.loss"] = attack.attack_single_run(x, y)[2].double()
            print(f"{norm} {name}: accuracy {100 * (1 - broken.float().mean()):.1f} %")
    golden.write(os.path.join(folder, "apgd.safetensors"), out, dict(steps=str(STEPS)))


if __name__ == "__main__":
    main()
