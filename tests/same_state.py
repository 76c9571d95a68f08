#!/usr/bin/env python3
"""same_state.py A [B [WITHIN]] - opens safetensors files and prints A's step; with two it fails unless all tensors
and all metadata are equal, but for the seconds spent and for options that may change on the way. With WITHIN the
network's weights and statistics may differ by so much of their length, all together, and the rest is not compared."""
import array
import json
import math
import struct
import sys

MAY_DIFFER = {"out", "resume", "checkpoint-minutes", "threads", "device", "data-dir"}


def load(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        tensors = json.loads(f.read(size))
        data = f.read()
    meta = tensors.pop("__metadata__", {})
    meta.pop("seconds", None)
    options = (line.partition(" = ") for line in meta.pop("options", "").splitlines())
    meta.update((name, value) for name, _, value in options if name not in MAY_DIFFER)
    end = 0
    for name, t in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = t["data_offsets"]
        if begin != end or after > len(data):
            sys.exit(f"{path}: {name}: bytes {begin} to {after}, expected to begin at {end}, of {len(data)}")
        t["data"], end = data[begin:after], after
    return meta, tensors


def length(numbers):
    return math.sqrt(math.fsum(x * x for x in numbers))


def apart(a, b):
    """The difference's length as a share of a's, over the network's floats."""
    names = [n for n, t in a.items() if t["dtype"] == "F32" and n.startswith(("f.", "class_output."))]
    x, y = (array.array("f", b"".join(side[n]["data"] for n in names)) for side in (a, b))
    return length(p - q for p, q in zip(x, y)) / length(x)


files = [load(path) for path in sys.argv[1:3]]
if len(sys.argv) > 3:
    share = apart(files[0][1], files[1][1])
    print(f"apart by {share:.2g} of their length, {sys.argv[3]} allowed")
    sys.exit(not share <= float(sys.argv[3]))
found = []
for kind, a, b in zip(("metadata", "tensor"), files[0], files[-1]):
    found += [f"{kind} {name} differs" for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
print("\n".join(found) or files[0][0].get("step", "no step"))
sys.exit(bool(found))
