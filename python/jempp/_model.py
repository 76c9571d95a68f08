"""A trained model in use."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from ctypes import POINTER, byref, c_float
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import numpy as np

from ._images import Images, inputs, to_bytes
from ._lib import Err, Events, Options, Progress, check_fork, lib, path_bytes

_AT_ONCE = 64           # images of a call into the library; Ctrl-C is answered between two
_PROGRAMS_ALONE = {"out", "zoom", "columns", "preview", "force"}        # of `jempp sample`


def _floats(a: np.ndarray) -> Any:
    return a.ctypes.data_as(POINTER(c_float))


@dataclass(frozen=True)
class Predictions:
    """One row per image, in the order given. That of a picture that could not be read has NaN,
    label -1 and the name ""."""

    logits: np.ndarray              # float32 [n, classes]
    probs: np.ndarray               # float32 [n, classes]: p(y|x) at the model's temperature
    label: np.ndarray               # int64 [n]: the most probable class
    log_px: np.ndarray              # float32 [n]: log p(x) up to a constant
    known: Optional[np.ndarray]     # bool [n]: in distribution; None: the model has no threshold
    classes: List[str]              # the model's class names
    errors: Dict[int, str]          # why pictures could not be read, by number of the row

    def __len__(self) -> int:
        return len(self.label)

    @property
    def names(self) -> List[str]:
        """The name of each image's class."""
        return [self.classes[i] if i >= 0 else "" for i in self.label]


class Model:
    """A trained model: `jempp.open`. Several threads may use one; calls take turns.

    classes: class names; channels, side: of its images; threshold: the log p(x) below which an
    image counts as out of distribution, or None.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        self._lock = threading.RLock()
        self._p: Optional[int] = None
        self._in_call, self._options, self._threads = False, options, options.get("threads")
        err = Err()
        check_fork(self._threads)
        with Options("sample", options) as o:
            self._p = lib.jempp_open(o.p, path_bytes(path), byref(err))
        if not self._p:
            raise err.exception()
        self.path = os.fspath(path)
        self.classes: List[str] = [lib.jempp_class_name(self._p, i).decode("utf-8", "replace")
                                   for i in range(lib.jempp_classes(self._p))]
        self.channels: int = lib.jempp_channels(self._p)
        self.side: int = lib.jempp_side(self._p)
        threshold = lib.jempp_threshold(self._p)
        self.threshold: Optional[float] = None if math.isnan(threshold) else threshold

    def close(self) -> None:
        """Frees the model. Using it afterwards is a ValueError."""
        with self._lock:
            self._not_in_call()
            p, self._p = self._p, None
            if p:
                lib.jempp_close(p)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_p", None):
            self.close()

    def __reduce__(self) -> Any:        # a copy, or the model in another process, is opened again
        return functools.partial(Model, **self._options), (self.path,)

    def __repr__(self) -> str:
        return (f"<jempp.Model {self.path}: {len(self.classes)} classes, "
                f"{self.channels} x {self.side} x {self.side}>")

    def _open(self) -> int:
        if not self._p:
            raise ValueError(f"{self.path}: the model is closed")
        check_fork(self._threads)
        return self._p

    def _not_in_call(self) -> None:
        if self._in_call:
            raise ValueError(f"{self.path}: in a callback, the model that called it can only "
                             "predict")

    @contextlib.contextmanager
    def _long_call(self) -> Iterator[int]:
        """The model for a call with callbacks, which come while it works."""
        with self._lock:
            self._not_in_call()
            self._in_call = True
            try:
                yield self._open()
            finally:
                self._in_call = False

    def _load_file(self, path: bytes, dst: np.ndarray) -> None:
        err = Err()
        with self._lock:
            if lib.jempp_load_image(self._open(), path, _floats(dst), byref(err)):
                raise err.exception()

    def _decode(self, data: bytes, name: str, dst: np.ndarray) -> None:
        err = Err()
        with self._lock:
            if lib.jempp_decode_image(self._open(), data, len(data), name.encode(), _floats(dst),
                                      byref(err)):
                raise err.exception()

    # ---- classifying

    def logits(self, images: Images) -> np.ndarray:
        """The logits of the images, float32 [n, classes]. Images: see predict."""
        return self._logits(images, None)

    def _logits(self, images: Images, errors: Optional[Dict[int, str]]) -> np.ndarray:
        parts = []
        for x in inputs(images, self, _AT_ONCE, errors):
            z, err = np.empty((len(x), len(self.classes)), np.float32), Err()
            with self._lock:
                if lib.jempp_logits(self._open(), _floats(x), len(x), _floats(z), byref(err)):
                    raise err.exception()
            parts.append(z)
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)), np.float32)

    def predict(self, images: Images, *, strict: bool = True) -> Predictions:
        """Classifies images, and detects those that are out of distribution.

        images: one, or a sequence of any length of
          - paths of PNG, JPEG or WebP files, such files that are open, and their contents (bytes),
          - PIL images,
          - uint8 arrays [h, w, c], [c, h, w] or [h, w], with 1 (grey), 3 (RGB) or, with alpha, 2
            or 4 channels,
          - float arrays of the model's own size in [0, 1],
        or an array of several images, [n, h, w, c], [n, c, h, w] or [n, h, w] (of a grey model:
        always, so it takes no [c, h, w]). Files, PIL images and uint8 arrays of another size are
        resized and cropped as by `jempp predict`.
        strict: a picture that cannot be read is an error; else the others have their results, and
        it has a message in `errors`.
        """
        errors: Dict[int, str] = {}
        z = self._logits(images, None if strict else errors)
        p, score = np.empty_like(z), np.empty(len(z), np.float32)
        with self._lock:
            j = self._open()
            for i in range(len(z)):
                score[i] = lib.jempp_score(j, _floats(z[i]), _floats(p[i]))
        label, unread = p.argmax(1), list(errors)
        z[unread] = p[unread] = score[unread] = np.nan
        label[unread] = -1
        known = None if self.threshold is None else score >= np.float32(self.threshold)
        return Predictions(z, p, label, score, known, self.classes, errors)

    # ---- sampling

    def _names(self, cls: Any) -> Any:
        """Classes by name: a class that is called 3 need not be number 3."""
        if isinstance(cls, Iterable) and not isinstance(cls, (str, bytes)):
            return [self._names(c) for c in cls]
        is_number = isinstance(cls, Integral) and 0 <= int(cls) < len(self.classes)
        return self.classes[int(cls)] if is_number else cls

    def sample(self, n: int, cls: Union[None, int, str, Sequence[Union[int, str]]] = None,
               steps: Optional[int] = None, *, on_progress: Optional[Progress] = None,
               **options: Any) -> np.ndarray:
        """Draws n images, uint8 [n, side, side, channels].

        cls: a class or several, by name or number; steps: gradient steps of each chain. Other
        options are those of `jempp sample` (seed, start, from_, step_size, ...), except for those
        that name output files. best=n or worst=n keeps n of `count`.
        on_progress(done, total, text) is called repeatedly.
        """
        for name in options.keys() & _PROGRAMS_ALONE:
            raise TypeError(f"sample returns images; {name} is an option of the program alone")
        for name in options.keys() & {"best", "worst"}:
            if options[name] not in (None, n):
                raise ValueError(f"sample: {name} {options[name]} of {n} images; expected {n}, and "
                                 "in count the number to select from")
        x, err = np.empty((n, self.channels, self.side, self.side), np.float32), Err()
        wanted = {"class": self._names(cls), "steps": steps, **options}
        with Options("sample", wanted) as o, self._long_call() as j:
            with Events(on_progress=on_progress) as ev:
                failed = lib.jempp_sample(j, o.p, byref(ev.c), n, _floats(x), None, byref(err))
        if failed:
            raise err.exception()
        return to_bytes(x)

    # ---- files

    def export(self, path: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        """Writes the model to one file; the suffix selects the format, .safetensors, .pt, .pth or
        .onnx. Options: half, force."""
        err = Err()
        with Options("export", options) as o, self._lock:
            if lib.jempp_export(self._open(), o.p, path_bytes(path), byref(err)):
                raise err.exception()


def open(path: Union[str, "os.PathLike[str]"], *, device: Optional[str] = None,
         threads: Optional[int] = None, precision: Optional[str] = None,
         deterministic: Optional[bool] = None,
         data_dir: Union[None, str, "os.PathLike[str]"] = None) -> Model:
    """Opens a run folder or a model file.

    device: "auto" (a GPU, else the CPU), "cpu", "cuda" or "ref"; threads: CPU threads;
    precision: "auto", "fp32", "tf32" or "bf16"; data_dir: where image sets are looked for first.
    """
    return Model(path, device=device, threads=threads, precision=precision,
                 deterministic=deterministic, data_dir=data_dir)
