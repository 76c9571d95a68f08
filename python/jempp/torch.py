"""A model as a PyTorch module, for libraries that attack, verify or score such modules.

    net = jempp.torch.load("model.safetensors")
    logits = net(images)                        # float [n, c, side, side] in [0, 1]

PyTorch must be installed; jempp itself does not need it.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Tuple, Union

import numpy as np
import torch
from torch import nn

from ._model import open as open_model

_LEAK, _STEM_STRIDE = 0.2, {3: 1, 4: 2}


def _act(norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.leaky_relu(norm(x), _LEAK)


def _norm(channels: int, batch: bool) -> nn.Module:
    return nn.BatchNorm2d(channels) if batch else nn.Identity()


class _Block(nn.Module):
    def __init__(self, c: int, out: int, stride: int, batch: bool) -> None:
        super().__init__()
        self.bn1, self.bn2 = _norm(c, batch), _norm(out, batch)
        self.conv1 = nn.Conv2d(c, out, 3, 1, 1)
        self.conv2 = nn.Conv2d(out, out, 3, stride, 1)
        self.shortcut = nn.Sequential()
        if c != out or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(c, out, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(_act(self.bn2, self.conv1(_act(self.bn1, x))))
        total: torch.Tensor = y + self.shortcut(x)
        return total


def _layer(c: int, out: int, stride: int, blocks: int, batch: bool) -> nn.Sequential:
    rest = [_Block(out, out, 1, batch) for _ in range(blocks - 1)]
    return nn.Sequential(_Block(c, out, stride, batch), *rest)


class _Features(nn.Module):
    def __init__(self, channels: int, stem: int, blocks: int, width: int, batch: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, stem, _STEM_STRIDE[stem], 1)
        self.layer1 = _layer(16, 16 * width, 1, blocks, batch)
        self.layer2 = _layer(16 * width, 32 * width, 2, blocks, batch)
        self.layer3 = _layer(32 * width, 64 * width, 2, blocks, batch)
        self.bn1 = _norm(64 * width, batch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return _act(self.bn1, x).mean((2, 3))


class WideResNet(nn.Module):
    """The network of a jempp model. It takes images in [0, 1] and returns logits; `temperature`
    divides them to give p(y|x), and their LogSumExp is log p(x) up to a constant."""

    temperature: float
    classes: Tuple[str, ...]

    def __init__(self, weights: Dict[str, np.ndarray]) -> None:
        super().__init__()
        stem, first = weights["f.conv1.weight"], weights["f.layer1.0.conv1.weight"]
        head = weights["class_output.weight"]
        blocks = 0
        while f"f.layer1.{blocks}.conv1.weight" in weights:
            blocks += 1
        self.f = _Features(stem.shape[1], stem.shape[2], blocks, first.shape[0] // 16,
                           "f.bn1.weight" in weights)
        self.class_output = nn.Linear(head.shape[1], head.shape[0])
        self.temperature, self.classes = 1.0, ()
        own = self.state_dict()
        self.load_state_dict({k: torch.tensor(weights[k]) for k in own})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.class_output(self.f(2 * x - 1))
        return logits


_TYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}
_NETWORK = ("f.", "class_output.")              # the rest is for chain starts


def _read(path: Path) -> Tuple[Dict[str, np.ndarray], Dict[str, Any]]:
    """The network's tensors, and the metadata, of a model that the library has just written."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    meta = head.pop("__metadata__", {})
    tensors = {}
    for name, t in head.items():
        if not name.startswith(_NETWORK):
            continue
        begin, end = t["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        tensors[name] = np.frombuffer(raw, _TYPES[t["dtype"]]).reshape(t["shape"])
    return tensors, meta


def load(path: Union[str, "os.PathLike[str]"]) -> WideResNet:
    """The network of a run folder or model file, in evaluation mode: a torch.nn.Module that takes
    images [n, c, side, side] in [0, 1] and returns logits."""
    with tempfile.TemporaryDirectory() as tmp, open_model(path, device="ref") as m:
        file = Path(tmp) / "model.safetensors"
        m.export(file)
        weights, meta = _read(file)
        net = WideResNet(weights)
        net.temperature = float(meta.get("temperature", 1))
        net.classes = tuple(m.classes)
    net.eval()
    return net


__all__ = ["WideResNet", "load"]
