#!/usr/bin/env python3
"""read_run.py RUN MODEL FORMATS.md - an independent reader of a run folder and of an exported model, written from
docs/formats.md alone. It fails on a file, column, key or tensor that the page does not describe, on one that the page
describes as always present and that is missing, and on values that contradict the page."""
import json
import math
import os
import re
import struct
import sys

errors = []


def expect(fact, message):
    if not fact:
        errors.append(message)


def named_in(text):
    """Everything that the page writes as code: `name`."""
    return {word for code in re.findall(r"`([^`]+)`", text) for word in re.split(r"[\s,]+", code)}


def section(text, title):
    found = re.search(rf"^##+ {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    expect(found, f"no section '{title}'")
    return found.group(1) if found else ""


def keys_of(value):
    """The names of all members of a JSON value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def read_tsv(path):
    with open(path, encoding="utf-8") as f:
        head, *rows = [line.rstrip("\n").split("\t") for line in f]
    return [dict(zip(head, row)) for row in rows]


def read_safetensors(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    meta = header.pop("__metadata__", {})
    width = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I8": 1}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        expect(0 <= begin <= end <= len(data), f"{path}: {name} lies outside the file")
        expect(end - begin == width[t["dtype"]] * math.prod(t["shape"]), f"{path}: {name}: its shape and bytes differ")
    return meta, {name: t["shape"] for name, t in header.items()}


def weights(meta, tensors, path):
    """The shapes that the page gives for the weights of this network; what is left of the tensors."""
    option = dict(line.partition(" = ")[::2] for line in meta["options"].splitlines())
    depth, k = (int(v) for v in option["model"].split("-")[1:])
    stem = 4 if option["stem"] == "4x4" else 3
    shape, norms = {}, {}

    def conv(name, out, into, size):
        shape[name + ".weight"], shape[name + ".bias"] = [out, into, size, size], [out]

    def norm(name, width):
        if option["norm"] == "batch":
            norms[name] = width

    conv("f.conv1", 16, int(meta["channels"]), stem)
    into = 16
    for g in (1, 2, 3):
        for i in range((depth - 4) // 6):
            name, out = f"f.layer{g}.{i}", 16 * k * 2 ** (g - 1)
            norm(name + ".bn1", into)
            conv(name + ".conv1", out, into, 3)
            norm(name + ".bn2", out)
            conv(name + ".conv2", out, out, 3)
            if into != out or (g > 1 and i == 0):
                conv(name + ".shortcut.0", out, into, 1)
            into = out
    norm("f.bn1", 64 * k)
    shape["class_output.bias"] = classes = tensors["class_output.bias"]
    shape["class_output.weight"] = classes + [64 * k]
    for name, width in norms.items():
        shape.update({f"{name}.{part}": [width] for part in ("weight", "bias", "running_mean", "running_var")})
        shape[name + ".num_batches_tracked"] = []
    for name, expected in shape.items():
        expect(tensors.get(name) == expected, f"{path}: {name}: found {tensors.get(name)}, expected {expected}")
    parameters = sum(math.prod(s) for n, s in shape.items() if n.endswith((".weight", ".bias")))
    return {n: s for n, s in tensors.items() if n not in shape}, parameters, classes[0]


def described(names, page, where):
    known = named_in(page)
    for name in sorted(set(names) - known):
        errors.append(f"{where}: '{name}' is not described")


def main(run, model, formats):
    with open(formats, encoding="utf-8") as f:
        text = f.read()

    folder = section(text, "The run folder")
    for name in os.listdir(run):
        stem = os.path.splitext(name)[0] if name.endswith((".png", ".svg")) else name
        described([stem + "/step-NNNNNNN.png" if name == "samples" else stem + "/*.png" if name == "sheets" else stem],
                  folder, "run folder")

    log = read_tsv(os.path.join(run, "log.tsv"))
    described(log[0], section(text, "log.tsv"), "log.tsv")
    expect([int(row["step"]) for row in log] == list(range(len(log))), "log.tsv: steps do not count from 0")
    for row in log:
        expect(all(0 <= float(row[c]) <= 1 for c in ("accuracy", "valid_accuracy") if row[c]), f"log.tsv: {row}")
        expect(int(row["step"]) >= 50 or float(row["gap"]) == 0, f"log.tsv: gap before step 50: {row}")

    with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
        record = json.load(f)
    options = record.pop("options")
    described(record, section(text, "run.json"), "run.json")
    expect(record["steps"] == len(log), f"run.json: {record['steps']} steps, log.tsv has {len(log)}")
    expect(all(isinstance(v, str) for v in options.values()), "run.json: options that are not text")

    with open(os.path.join(run, "eval.json"), encoding="utf-8") as f:
        results = json.load(f)
    described(keys_of(results), section(text, "eval.json"), "eval.json")
    tasks, n_class = results["tasks"], len(results["classes"])
    expect(sum(map(sum, tasks["acc"]["confusion"])) == tasks["acc"]["n"], "eval.json: confusion and n differ")
    expect(sum(b["count"] for b in tasks["ece"]["reliability"]) == tasks["ece"]["n"], "eval.json: bins and n differ")
    for s in tasks["ood"]["sets"]:
        for score in s["scores"].values():
            expect(score["roc"][0] == [0, 0] and score["roc"][-1] == [1, 1], f"eval.json: ROC of {s['name']}")
    for curve in tasks["attack"]["curves"]:
        expect(len(curve["radii"]) == len(curve["accuracy"]), "eval.json: a curve's radii and accuracies differ")

    page = section(text, "Checkpoints and models: safetensors")
    best = os.path.join(run, "best.safetensors")
    for path in (best, model):
        meta, tensors = read_safetensors(path)
        rest, _, classes = weights(meta, tensors, path)
        described(list(meta) + list(rest), page, path)
        dim = int(meta["channels"]) * int(meta["side"]) ** 2
        expect(meta["format"] == "jempp model 1", f"{path}: {meta['format']}")
        expect(len(meta["classes"].splitlines()) == classes == n_class, f"{path}: class names")
        kept = min(448, dim)
        expect(rest == {"start.mean": [classes, dim], "start.spectrum": [classes, dim], "start.index": [kept],
                        "start.lower": [classes, kept * (kept + 1) // 2]}, f"{path}: {rest}")
    for name in ("last", "prev"):
        path = os.path.join(run, name + ".safetensors")
        meta, tensors = read_safetensors(path)
        rest, parameters, _ = weights(meta, tensors, path)
        described(list(meta) + list(rest), page, path)
        expect(meta["format"] == "jempp state 1", f"{path}: {meta['format']}")
        expect(parameters == record["parameters"], f"{path}: {parameters} parameters, run.json {record['parameters']}")
        expect(rest["optim.v"] == rest["ema.weights"] == [parameters], f"{path}: {rest}")
        expect(rest["replay"] == [int(options["buffer"]) * dim], f"{path}: replay {rest['replay']}")

    for line in errors:
        print(line)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
