"""The C library (include/jempp.h) by ctypes: where it is, its functions, options, errors, events."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int,
                    c_size_t, c_uint64, c_void_p)
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

__version__ = "0.2.0"           # JEMPP_VERSION; a test compares

log = logging.getLogger("jempp")


# ---- errors

class Error(Exception):
    """A failure of the library, with the message that the program prints.

    kind: "usage", "io", "data", "memory", "device" or "diverged".
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class Diverged(Error):
    """Training diverged, and its retries are exhausted."""


_KINDS = ["", "usage", "io", "data", "memory", "device", "diverged"]


class Err(Structure):
    """JemppErr"""
    _fields_ = [("kind", c_int), ("msg", c_char * 1024)]

    def exception(self) -> Error:
        message = self.msg.decode("utf-8", "replace")
        kind = _KINDS[self.kind] if 0 < self.kind < len(_KINDS) else ""
        return (Diverged if kind == "diverged" else Error)(message, kind)


# ---- the library

_LINE = CFUNCTYPE(None, c_void_p, c_char_p)
_PROGRESS = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_uint64, c_char_p, c_char_p)
_STOP = CFUNCTYPE(c_int, c_void_p)
_ROW = CFUNCTYPE(None, c_void_p, c_int, POINTER(c_char_p), POINTER(c_double))


class CEvents(Structure):
    """JemppEvents"""
    _fields_ = [("line", _LINE), ("progress", _PROGRESS), ("stop", _STOP), ("row", _ROW),
                ("ctx", c_void_p)]


class CTrained(Structure):
    """JemppTrained"""
    _fields_ = [("out", c_char * 512), ("steps", c_uint64), ("seconds", c_double),
                ("valid_accuracy", c_double), ("test_accuracy", c_double), ("test_ece", c_double),
                ("stopped", c_int), ("retries", c_int)]


_floats, _ints, _err, _events = (POINTER(c_float), POINTER(c_int), POINTER(Err), POINTER(CEvents))
_FUNCTIONS: Mapping[str, Any] = {       # name: result, arguments
    "jempp_version": (c_char_p, []),
    "jempp_devices": (c_void_p, []),
    "jempp_options": (c_void_p, [c_char_p, _err]),
    "jempp_options_free": (None, [c_void_p]),
    "jempp_set_args": (c_int, [c_void_p, c_int, POINTER(c_char_p), _err]),
    "jempp_train": (c_int, [c_void_p, _events, POINTER(CTrained), _err]),
    "jempp_open": (c_void_p, [c_void_p, c_char_p, _err]),
    "jempp_close": (None, [c_void_p]),
    "jempp_classes": (c_int, [c_void_p]),
    "jempp_class_name": (c_char_p, [c_void_p, c_int]),
    "jempp_channels": (c_int, [c_void_p]),
    "jempp_side": (c_int, [c_void_p]),
    "jempp_threshold": (c_float, [c_void_p]),
    "jempp_load_image": (c_int, [c_void_p, c_char_p, _floats, _err]),
    "jempp_decode_image": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, _floats, _err]),
    "jempp_logits": (c_int, [c_void_p, _floats, c_int, _floats, _err]),
    "jempp_score": (c_float, [c_void_p, _floats, _floats]),
    "jempp_sample": (c_int, [c_void_p, c_void_p, _events, c_int, _floats, _ints, _err]),
    "jempp_export": (c_int, [c_void_p, c_void_p, c_char_p, _err]),
    "jempp_eval": (c_void_p, [c_void_p, c_void_p, _events, _err]),
}


def _load() -> ctypes.CDLL:
    own = Path(__file__).parent / "lib" / "libjempp.so"
    name = os.environ.get("JEMPP_LIBRARY") or (str(own) if own.exists() else "libjempp.so.0")
    try:
        lib = ctypes.CDLL(name)
    except OSError as e:
        raise ImportError(f"{name}: {e}; `pip install .` in jempp's source builds it, and "
                          "JEMPP_LIBRARY names another") from None
    for function, (result, arguments) in _FUNCTIONS.items():
        f = getattr(lib, function)
        f.restype, f.argtypes = result, arguments
    found = lib.jempp_version().decode().split()[0]
    if found != __version__:
        raise ImportError(f"{name}: is version {found}, expected {__version__}")
    return lib


lib = _load()
_libc = ctypes.CDLL(None)
_libc.free.argtypes = [c_void_p]


def take_text(p: Optional[int]) -> Optional[str]:
    """The malloc'd text at p, which is freed; None for NULL."""
    if not p:
        return None
    text = ctypes.string_at(p).decode("utf-8", "replace")
    _libc.free(p)
    return text


def devices() -> str:
    """One line per device: its description, or why it cannot be used here."""
    return take_text(lib.jempp_devices()) or ""


_threads_of: Optional[int] = None       # the process in which the library has started threads


def check_fork(threads: Any) -> None:
    """OpenMP's threads do not survive os.fork(): the new process would wait for them for ever."""
    global _threads_of
    if threads is not None and str(threads) == "1":
        return
    _threads_of = _threads_of or os.getpid()
    if _threads_of != os.getpid():
        raise Error("jempp was used before os.fork(), and its threads are not in the new process: "
                    "start processes with multiprocessing's method 'spawn', or use threads=1 in "
                    "both", "usage")


# ---- options

def path_bytes(path: Any) -> bytes:
    """A path for the library."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError(f"{path!r:.80}: a null byte in a name")
    return name


def _text_of(value: Any) -> str:
    if getattr(value, "ndim", None) == 0:           # a number of NumPy's
        value = value.item()
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    if hasattr(value, "__iter__"):
        return ",".join(_text_of(v) for v in value)
    return repr(value) if isinstance(value, float) else str(value)


class Options:
    """Options of a command by their names on the command line; - is _ here (weight_decay), and a
    name that Python reserves ends in _ (from_). None: the default."""

    def __init__(self, command: str, options: Mapping[str, Any]) -> None:
        err = Err()
        self.p = lib.jempp_options(command.encode(), byref(err))
        if not self.p:
            raise err.exception()
        try:
            args = [path_bytes(f"--{name.rstrip('_').replace('_', '-')}={_text_of(value)}")
                    for name, value in options.items() if value is not None]
            if lib.jempp_set_args(self.p, len(args), (c_char_p * len(args))(*args), byref(err)):
                raise err.exception()
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        lib.jempp_options_free(self.p)
        self.p = None

    def __enter__(self) -> "Options":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


# ---- long calls

Progress = Callable[[int, int, str], None]


class Events:
    """What a long call reports, and how it is stopped: by Ctrl-C in the main thread, by an
    exception in a callback, or by stop(). Exceptions are kept until the library has returned."""

    def __init__(self, on_row: Optional[Callable[[Dict[str, float]], Any]] = None,
                 on_progress: Optional[Progress] = None) -> None:
        self.stopped = False
        self._error: Optional[BaseException] = None
        self._on_row, self._on_progress = on_row, on_progress
        self.c = CEvents(_LINE(self._line), _PROGRESS(self._progress), _STOP(self._stop),
                         _ROW(self._row) if on_row else _ROW(), None)

    def stop(self) -> None:
        self.stopped = True

    def _call(self, f: Callable[..., Any], *args: Any) -> Any:
        try:
            return f(*args)
        except BaseException as e:
            self._error = self._error or e
            self.stopped = True
            return None

    def _line(self, _: object, text: bytes) -> None:
        self._call(log.info, "%s", text.decode("utf-8", "replace"))

    def _progress(self, _: object, first: int, done: int, total: int, unit: bytes,
                  text: bytes) -> None:
        if self._on_progress:
            self._call(self._on_progress, done, total,
                       (text or unit).decode("utf-8", "replace"))

    def _stop(self, _: object) -> int:
        return 1 if self.stopped else 0

    def _row(self, _: object, n: int, name: Any, value: Any) -> None:
        if self._on_row and not self._error:
            self._call(self._on_row, {name[i].decode(): value[i] for i in range(n)})

    # An exception that a signal handler raises at the beginning of a callback would be lost in the
    # library. So the handler runs inside this one, which keeps the exception.
    def _on_signal(self, number: int, frame: Any) -> None:
        if callable(self._former):
            self._call(self._former, number, frame)

    def __enter__(self) -> "Events":
        self._former = signal.getsignal(signal.SIGINT)      # before a signal can ask for it
        self._catches = (threading.current_thread() is threading.main_thread()
                         and callable(self._former))
        if self._catches:
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._catches:
            signal.signal(signal.SIGINT, self._former)
        if self._error:
            raise self._error from None
