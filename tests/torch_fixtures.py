#!/usr/bin/env python3
"""torch_fixtures.py FOLDER - writes the files that tests/test_torch_file.c reads, with the PyTorch
that is installed: its version is part of their names. The committed ones are of 1.13.1 and 2.7.1."""
import collections
import sys
import warnings
import torch

warnings.filterwarnings("ignore")
folder, version = sys.argv[1], "".join(torch.__version__.split("+")[0].split(".")[:2])


def numbers(*shape, dtype=torch.float32):
    n = 1
    for s in shape:
        n *= s
    return torch.arange(n).to(dtype).reshape(shape)


base = numbers(4, 6)
model = collections.OrderedDict()
model["f32"] = numbers(2, 3)
model["f64"] = numbers(2, dtype=torch.float64)
model["f16"] = numbers(3, dtype=torch.float16)
model["bf16"] = numbers(3, dtype=torch.bfloat16)
model["i64"] = torch.tensor(7)
model["u8"] = numbers(2, dtype=torch.uint8)
model["empty"] = torch.empty(0, 3)
model["transposed"] = base.t()                          # 6, 4: strides 1, 6
model["part"] = base[1:3, 2:5]                          # offset 8, strides 6, 1
model["channels_last"] = numbers(1, 2, 2, 2).to(memory_format=torch.channels_last)
model["parameter"] = torch.nn.Parameter(numbers(2))
content = {"model": model, "epoch": 3, "lr": 0.5, "note": "made here", "list": [numbers(1)],
           "none": None, "flag": True}
for kind, zipped in (("zip", True), ("stream", False)):
    torch.save(content, f"{folder}/{kind}-{version}.pt", _use_new_zipfile_serialization=zipped)
torch.save(content, f"{folder}/protocol4-{version}.pt", pickle_protocol=4)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 1)
        self.norm = torch.nn.BatchNorm1d(1)

    def forward(self, x):
        return self.norm(self.fc(x))


net = Net()
net.load_state_dict({"fc.weight": numbers(1, 2), "fc.bias": numbers(1),
                     "norm.weight": numbers(1), "norm.bias": numbers(1),
                     "norm.running_mean": numbers(1), "norm.running_var": numbers(1) + 1,
                     "norm.num_batches_tracked": torch.tensor(5)})
torch.jit.save(torch.jit.script(net), f"{folder}/script-{version}.pt")
