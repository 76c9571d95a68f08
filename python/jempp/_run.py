"""Training and evaluating."""

from __future__ import annotations

import json
import math
import os
from ctypes import byref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Union

import numpy as np

from ._lib import CTrained, Err, Events, Options, Progress, check_fork, lib, take_text
from ._model import Model

_Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run. Accuracies and the calibration error are fractions, None where
    they are not known."""

    out: str                            # the run folder
    steps: int
    seconds: float
    valid_accuracy: Optional[float]
    test_accuracy: Optional[float]
    test_ece: Optional[float]
    stopped: bool                       # by on_step: train(resume=True, out=...) continues
    retries: int                        # rollbacks after a divergence


def _known(v: float) -> Optional[float]:
    return None if math.isnan(v) else v


def train(preset: Optional[str] = None, *, out: Optional[_Path] = None,
          on_step: Optional[Callable[[Dict[str, float]], Any]] = None,
          on_progress: Optional[Progress] = None, **options: Any) -> TrainResult:
    """Trains a model into the run folder `out`, as `jempp train` does with the same options.

    on_step(values) gets each step's line of log.tsv as a dictionary, NaN where it is empty. A true
    result stops training after a checkpoint. So does an exception, which is then raised, and
    Ctrl-C. On a GPU several steps are reported at once. After a divergence steps repeat from the
    checkpoint.
    on_progress(done, total, text) is called at the same times; messages go to the logger "jempp".
    """
    err, result = Err(), CTrained()
    check_fork(options.get("threads"))
    with Options("train", {"preset": preset, "out": out, **options}) as o:
        ev: Events

        def step(values: Dict[str, float]) -> None:
            if not ev.stopped and on_step and on_step(values):
                ev.stop()

        with Events(step if on_step else None, on_progress) as ev:
            failed = lib.jempp_train(o.p, byref(ev.c), byref(result), byref(err))
    if failed:
        raise err.exception()
    return TrainResult(os.fsdecode(result.out), result.steps, result.seconds,
                       _known(result.valid_accuracy), _known(result.test_accuracy),
                       _known(result.test_ece), bool(result.stopped), result.retries)


def evaluate(model: Union[Model, _Path], tasks: Union[None, str, Sequence[str]] = None, *,
             on_progress: Optional[Progress] = None, **options: Any) -> Dict[str, Any]:
    """Evaluates a model, a run folder or a model file, as `jempp eval` does with the same options,
    and returns the contents of eval.json (docs/formats.md).

    tasks: some of acc, ece, ood, attack, samples, speed, fid. out: the folder that results are
    written to; the default is the run folder or, for a lone file, NAME-eval in the current folder.
    """
    if not isinstance(model, Model):
        at_open = {k: options[k] for k in ("device", "threads", "precision", "conv",
                                           "deterministic", "data_dir") if k in options}
        with Model(model, **at_open) as m:
            return evaluate(m, tasks, on_progress=on_progress, **options)
    err = Err()
    with Options("eval", {"tasks": tasks, "json": True, **options}) as o, model._long_call() as j:
        with Events(on_progress=on_progress) as ev:
            text = take_text(lib.jempp_eval(j, o.p, byref(ev.c), byref(err)))
    if err.kind or text is None:
        raise err.exception()
    results: Dict[str, Any] = json.loads(text)
    return results


def read_log(run: _Path) -> Dict[str, np.ndarray]:
    """log.tsv of a run folder: one array per column, one value per step; NaN where it is empty.
    "step" is int64, the others float64. The run may still be training."""
    path = Path(run) / "log.tsv"
    with path.open(encoding="utf-8") as f:
        lines = f.read().split("\n")[:-1]           # a last line without its end is not complete
    if not lines:
        raise ValueError(f"{path}: is empty")
    names = lines[0].split("\t")
    rows = [line.split("\t") for line in lines[1:]]
    for i, row in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"{path}, line {i + 2}: {len(row)} fields, expected {len(names)}")
    table = np.array([[float(v) if v else math.nan for v in row] for row in rows], np.float64)
    columns = dict(zip(names, table.reshape(len(rows), len(names)).T))
    if "step" in columns:
        columns["step"] = columns["step"].astype(np.int64)
    return columns
