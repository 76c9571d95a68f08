#!/usr/bin/env python3
"""compare.py - trains every combination of some settings and puts them into one table.

    tools/compare.py --out runs/rules --vary px=clean,shared,independent --vary steps=5,10 --seeds 1,2 \\
        -- --model wrn-28-4 --schedule linear --minutes 1.25 --ema 0.999

What follows -- goes to every `jempp train`. Each run has a folder of its own below --out; one that is
complete is not repeated, one that was interrupted continues. Runs follow one another in the order of the table
unless --jobs says how many run at once. Then --minutes would make them compete for time; --seconds S avoids that: an
iteration of each setting is timed alone first (`jempp bench`), and each run gets as many as fit into S seconds.
"per epoch" is the seconds that an epoch of a run took, with validation and checkpoint; with --time it is that of
`jempp bench`, alone and before the runs, without these (kept in OUT/iteration_ms.json), and with --jobs alone there
is none. Accuracy and ECE are those of the validation images: with the last weights and, with --ema, with their
average; --test adds the test images, with the last weights. climb is its mean over the last 500 steps
(docs/pyld.md); --fid WEIGHTS adds the FID of the replay buffer against the training images; "diverged" is the
step at which a run failed for good (with --retries 0 the first time): the other figures of such a run are those of
its last checkpoint. Where presets vary, "paper" is the accuracy, and the FID, that the preset's file cites. Each run
is evaluated when it has ended, and the table of those that have is written to OUT/table.md; at the end it is printed.
A run that fails for another reason than divergence is left out, the others go on, and the exit code is 1."""
import argparse
import concurrent.futures
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True)
    p.add_argument("--vary", action="append", default=[], metavar="OPTION=A,B,...")
    p.add_argument("--seeds", default="1")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--time", action="store_true", help="time an iteration of each setting alone")
    p.add_argument("--test", action="store_true", help="accuracy and ECE of the test images too")
    p.add_argument("--fid", metavar="WEIGHTS", help="Inception weights, as for jempp eval --inception")
    built = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "jempp")
    p.add_argument("--jempp", default=os.environ.get("JEMPP", os.path.relpath(built)))
    p.add_argument("train", nargs="*", metavar="-- train options")
    a = p.parse_args()
    for v in a.vary:
        if not v.partition("=")[2]:
            p.error(f"--vary: found '{v}', expected OPTION=A,B,...")
    if not shutil.which(a.jempp):
        p.error(f"--jempp {a.jempp}: no such program; make builds it")
    return a


def settings(vary):
    """Every combination, each a tuple of (option, value)."""
    rows = [[(name, value) for value in values.split(",")]
            for name, _, values in (v.partition("=") for v in vary)]
    return list(itertools.product(*rows))


def call(command, log):
    with open(log, "ab") as f:
        return subprocess.run(command, stdout=f, stderr=f, stdin=subprocess.DEVNULL).returncode


class Failed(Exception):
    """A run or an evaluation failed for another reason than divergence."""


def fail(run, code, log):
    """Ends this run with the last line that the program wrote: its error."""
    with open(log, errors="replace") as f:
        said = [line for line in f if line.strip()]
    raise Failed(f"{run}: exit code {code}; see {log}" + (f"\n{said[-1].strip()}" if said else ""))


def label(setting, *more):
    return "_".join([f"{k}-{v}" for k, v in setting] + list(more)).replace("/", "over")


def folder(a, setting, seed):
    return os.path.join(a.out, label(setting, f"seed-{seed}"))


def begun(run):
    return os.path.exists(os.path.join(run, "last.safetensors"))


def iteration_ms(a, setting):
    """Milliseconds of one iteration, timed alone by `jempp bench`; kept in OUT/iteration_ms.json."""
    path, known = os.path.join(a.out, "iteration_ms.json"), {}
    if os.path.exists(path):
        with open(path) as f:
            known = json.load(f)
    if label(setting) not in known:
        decisive = ("preset", "config", "model", "norm", "stem", "batch", "labelled", "steps", "px", "sam", "sam-images",
                    "optimizer", "device", "threads", "precision")
        given = dict(zip(a.train, a.train[1:])) | {f"--{k}": v for k, v in setting}
        if not {"--px", "--preset"} & set(given):
            sys.exit("--seconds, --time: expected --px or --preset too, as train and bench have different defaults")
        options = [x for k in decisive if f"--{k}" in given for x in (f"--{k}", given[f"--{k}"])]
        bench = subprocess.run([a.jempp, "bench", "--iterations", "50", "--json"] + options,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if bench.returncode:
            sys.exit(bench.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        known[label(setting)] = json.loads(bench.stdout)["iteration_ms"]
        os.makedirs(a.out, exist_ok=True)
        with open(path, "w") as f:
            json.dump(known, f, indent=2)
    return known[label(setting)]


def iterations(a, setting, seeds):
    """Options that give a setting its share of time: how many of its iterations --seconds hold."""
    if not a.seconds or all(begun(folder(a, setting, s)) for s in seeds):
        return []
    return ["--iterations", str(int(1000 * a.seconds / iteration_ms(a, setting)))]


def train(a, setting, seed, length):
    """Returns the run's folder. A run that diverged for good keeps its last good state, which is evaluated too."""
    run = folder(a, setting, seed)
    done = os.path.join(run, "complete")
    if not os.path.exists(done):
        os.makedirs(run, exist_ok=True)
        options = [x for k, v in setting for x in (f"--{k}", v)]
        options = ["--resume"] if begun(run) else a.train + options + ["--seed", seed] + length
        log = os.path.join(run, "train.txt")
        code = call([a.jempp, "train", "--out", run] + options, log)
        if code not in (0, 3):
            fail(run, code, log)
        with open(done, "w") as f:
            f.write(f"{code}\n")
        print(os.path.basename(run), "diverged for good" if code else "trained", flush=True)
    return run


def evaluate(a, run, model, kind, options):
    """What `jempp eval` writes into the folder `kind` of the run, under "tasks"."""
    out = os.path.join(run, kind)
    path = os.path.join(out, "eval.json")
    if not os.path.exists(path):
        log = os.path.join(run, "eval.txt")
        code = call([a.jempp, "eval", os.path.join(run, model), "--out", out] + options, log)
        if code:
            fail(run, code, log)
    with open(path) as f:
        return json.load(f)["tasks"]


def accuracy(a, run, model, kind, split="valid"):
    """Accuracy and calibration error on the run's validation or test images."""
    tasks = evaluate(a, run, model, kind, ["--split", split, "--tasks", "acc,ece"])
    return tasks["acc"]["top1"], tasks["ece"]["ece"]


def buffer_fid(a, run):
    tasks = evaluate(a, run, "", "fid", ["--tasks", "fid", "--from", "buffer", "--inception", a.fid])
    return tasks["fid"]["buffer"]["fid"]


def column(run, name, file="log.tsv"):
    """What the file has under a name, in order, empty fields left out."""
    with open(os.path.join(run, file)) as f:
        k = next(f).rstrip("\n").split("\t").index(name)
        fields = (line.rstrip("\n").split("\t")[k] for line in f)
        return [float(x) for x in fields if x]


def result(a, run, alone):
    with open(os.path.join(run, "run.json")) as f:
        r = json.load(f)
    with open(os.path.join(run, "complete")) as f:
        failed = int(f.read()) != 0
    last = int(column(run, "step", "diverged.tsv")[-1]) if failed else None
    plain, plain_ece = accuracy(a, run, "last.safetensors", "plain")
    epochs, chains = r["steps"] / r["steps_per_epoch"], r["options"]["px"] != "none"
    climb = column(run, "climb")[-500:] if chains else []
    best = os.path.exists(os.path.join(run, "best.safetensors"))        # not where the first epoch diverged
    own = r["seconds"] / epochs if epochs and a.jobs == 1 else None
    one = {"epochs": epochs, "seconds": a.seconds or r["seconds"], "retries": r["retries"],
           "per_epoch": alone * r["steps_per_epoch"] / 1000 if alone else own,
           "climb": statistics.mean(climb) if climb else None, "diverged": last,
           "fid": buffer_fid(a, run) if a.fid and chains and best else None, "plain": plain, "plain_ece": plain_ece}
    if a.test:
        one["test"], one["test_ece"] = accuracy(a, run, "last.safetensors", "test", "test")
    if float(r["options"]["ema"]) > 0 and best:
        one["average"] = 100 * column(run, "valid_accuracy")[-1]    # the last epoch's is of these
        one["average_ece"] = accuracy(a, run, "best.safetensors", "average")[1]
    return one


def paper(setting):
    """Accuracy and FID in the paper that the file of a preset cites: columns where presets vary."""
    name = dict(setting).get("preset")
    if not name:
        return []
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "presets", name + ".conf")) as f:
        text = f.read()
    found = re.search(r"The paper: ([0-9.]+) %(?:, FID ([0-9.]+[0-9]))?", text)
    return [found[k] if found and found[k] else "–" for k in (1, 2)]


def several(values, form):
    """The values of all seeds; a dash where there is none."""
    return "–" if all(v is None for v in values) else ", ".join("–" if v is None else form.format(v) for v in values)


def average(values):
    known = [v for v in values if v is not None]
    return f"{statistics.mean(known):.2f}" if known else "–"


def table(a, vary, seeds, results):
    names = [v.partition("=")[0] for v in vary]
    kinds = [k for k in ("plain", "average", "test") if any(k in r for r in results.values())]
    head = names + ["paper", "paper's FID"] * ("preset" in names)
    head += ["epochs", "seconds", "per epoch", "rollbacks", "diverged", "climb"] + ["FID"] * bool(a.fid)
    for k in kinds:
        head += [f"{k}: " + ", ".join(f"seed {s}" for s in seeds), "mean", "ECE"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for setting in settings(vary):
        r = [results[setting, s] for s in seeds if (setting, s) in results]
        if not r:
            continue
        mean = lambda key: statistics.mean(x[key] for x in r)
        row = [v for _, v in setting] + paper(setting)
        row += [f"{mean('epochs'):.1f}", f"{mean('seconds'):.0f}", several([x["per_epoch"] for x in r], "{:.1f}")]
        row.append(several([x["retries"] for x in r], "{}"))
        row += [several([x["diverged"] for x in r], "{}"), several([x["climb"] for x in r], "{:.2f}")]
        if a.fid:
            row.append(several([x["fid"] for x in r], "{:.1f}"))
        for k in kinds:
            row += [several([x.get(k) for x in r], "{:.2f}"), average([x.get(k) for x in r]),
                    average([x.get(k + "_ece") for x in r])]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def main():
    a = arguments()
    seeds = a.seeds.split(",")
    keys = list(itertools.product(settings(a.vary), seeds))
    length = {s: iterations(a, s, seeds) for s in settings(a.vary)}
    alone = {s: iteration_ms(a, s) if a.time else None for s in settings(a.vary)}
    results, lock, failed = {}, threading.Lock(), []

    def one(key):
        try:
            found = result(a, train(a, *key, length[key[0]]), alone[key[0]])
        except Failed as e:
            failed.append(e)
            print(e, file=sys.stderr, flush=True)
            return
        with lock:
            results[key] = found
            with open(os.path.join(a.out, "table.md"), "w") as f:
                f.write(table(a, a.vary, seeds, results))

    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(one, keys))
    if results:
        print(table(a, a.vary, seeds, results), end="")
    sys.exit(bool(failed))


main()
