#!/usr/bin/env python3
"""seeds.py - the figures of several runs side by side, with mean and standard deviation, as a table.

    for seed in 1 2 3; do
        jempp train --preset cifar10-fast --seed $seed --device cuda --out runs/seed-$seed
        jempp eval runs/seed-$seed --tasks acc,ece,ood,fid --temperature --ood svhn,cifar100 --count 10000
    done
    tools/seeds.py runs/seed-1 runs/seed-2 runs/seed-3

Reads run.json and eval.json of each folder and writes Markdown to standard output. The runs may differ in their seeds
alone; other differences of their options are printed as a warning. The standard deviation is that of the runs (n - 1);
where a run lacks a figure, mean and standard deviation are of the others."""
import argparse
import json
import os
import statistics
import sys

SCORES = {"logpx": "log p(x)", "maxp": "max p(y\\|x)"}        # of the task ood; | ends a table's cell


def read(folder, name):
    path = os.path.join(folder, name)
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else f"not JSON: {e}"
        sys.exit(f"seeds.py: {path}: {reason}; expected a run folder after jempp eval")


def figures(run, tasks):
    """Figures by name, each as (value, digits behind the point)."""
    found = {"steps": (run["steps"], 0), "minutes": (run["seconds"] / 60, 1), "rollbacks": (run["retries"], 0)}
    percent = ", %"
    if "acc" in tasks:
        found["accuracy" + percent] = tasks["acc"]["top1"], 2
    if "ece" in tasks:
        scaled = tasks["ece"].get("temperature")
        found["ECE as trained" + percent] = tasks["ece"]["ece"], 2
        if scaled:
            found["ECE with temperature" + percent] = scaled["ece"], 2
    for s in tasks.get("ood", {}).get("sets", []):
        for key, name in SCORES.items():
            found[f"AUROC against {s['name']} by {name}"] = s["scores"][key]["auroc"], 3
    for c in tasks.get("attack", {}).get("curves", []):
        for radius, value in zip(c["radii"], c["accuracy"]):
            found[f"accuracy under {c['attack']} {c['norm']} {radius:g}" + percent] = value, 1
    for images, name in (("buffer", "replay buffer"), ("fresh", "fresh chains")):
        if tasks.get("fid", {}).get(images):
            found[f"FID, {name}"] = tasks["fid"][images]["fid"], 2
    return found


def warn_of_differences(folders, runs):
    ignored = {"seed", "out"}
    first = runs[0]["options"]
    for folder, run in zip(folders[1:], runs[1:]):
        o = run["options"]
        differ = [k for k in sorted(first.keys() | o.keys()) if k not in ignored and first.get(k) != o.get(k)]
        if differ:
            print(f"warning: {folder} differs from {folders[0]} in {', '.join(differ)}", file=sys.stderr)


def rows(columns):
    """One row of a figure: that of each run, mean, standard deviation."""
    for name in dict.fromkeys(name for c in columns for name in c):
        known = [c[name][0] for c in columns if name in c]
        digits = next(c[name][1] for c in columns if name in c)
        form = lambda x, more=0: f"{x:.{digits + more}f}"
        of_runs = [form(c[name][0]) if name in c else "–" for c in columns]
        more = 1 if digits == 0 else 0
        spread = form(statistics.stdev(known), more) if len(known) > 1 else "–"
        yield [name] + of_runs + [form(statistics.mean(known), more), spread]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("runs", nargs="+", metavar="RUN")
    folders = p.parse_args().runs
    runs = [read(f, "run.json") for f in folders]
    columns = [figures(r, read(f, "eval.json")["tasks"]) for f, r in zip(folders, runs)]
    warn_of_differences(folders, runs)
    head = ["", *(f"seed {r['options']['seed']}" for r in runs), "mean", "sd"]
    for line in [head, ["---"] * len(head), *rows(columns)]:
        print("| " + " | ".join(line) + " |")


main()
