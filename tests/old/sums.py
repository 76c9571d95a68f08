#!/usr/bin/env python3
"""sums.py CHECKPOINT [WANTED] - for each tensor of floats its name, sum and sum of squares; with WANTED, a file of
such lines, fails unless both agree to 1e-4 of the tensor's length."""
import array
import json
import math
import struct
import sys


def sums(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        tensors, data = json.loads(f.read(size)), f.read()
    tensors.pop("__metadata__", None)
    for name, t in sorted(tensors.items()):
        if t["dtype"] == "F32":
            v = array.array("f", data[slice(*t["data_offsets"])])
            yield name, math.fsum(v), math.fsum(x * x for x in v), len(v)


found = {name: rest for name, *rest in sums(sys.argv[1])}
if len(sys.argv) < 3:
    for name, (total, square, _) in found.items():
        print(f"{name} {total:.9g} {square:.9g}")
    sys.exit()
with open(sys.argv[2]) as f:
    wanted = {name: (float(a), float(b)) for name, a, b in map(str.split, f)}
if wanted.keys() != found.keys():
    sys.exit(f"tensors differ: {sorted(wanted.keys() ^ found.keys())}")
for name, (total, square, n) in found.items():
    length = math.sqrt(wanted[name][1])
    if abs(total - wanted[name][0]) > 1e-4 * length * math.sqrt(n) or abs(square - wanted[name][1]) > 1e-4 * wanted[name][1]:
        sys.exit(f"{name}: sums {total:.9g}, {square:.9g}; 0.1 has {wanted[name]}")
