"""Images of any kind as the model's input: float32 [n, channels, side, side] in [-1, 1]."""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Union

import numpy as np

from ._lib import Error, path_bytes

if TYPE_CHECKING:
    from ._model import Model

# An image, or several: see Model.predict.
Images = Union[str, "os.PathLike[str]", np.ndarray, Any, Sequence[Any]]

_SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"RIFF")         # bytes that are no path


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (struct.pack(">I", len(data)) + kind + data
            + struct.pack(">I", zlib.crc32(kind + data)))


def png(pixels: np.ndarray) -> bytes:
    """uint8 [h, w, 1 to 4] as a PNG file, hardly compressed: the library then treats the array as
    it treats a file."""
    h, w, c = pixels.shape
    rows = np.zeros((h, 1 + w * c), np.uint8)                    # each row begins with filter 0
    rows[:, 1:] = pixels.reshape(h, w * c)
    head = struct.pack(">IIBBBBB", w, h, 8, {1: 0, 2: 4, 3: 2, 4: 6}[c], 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head)
            + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 0)) + _chunk(b"IEND", b""))


def _is_pil(image: Any) -> bool:
    return hasattr(image, "mode") and hasattr(image, "convert") and hasattr(image, "size")


def _from_pil(image: Any) -> np.ndarray:
    """uint8 [h, w, c], upright. PIL's own conversion would clip 16 bits at 255; the high byte is
    what is read of such a file."""
    from PIL import ImageOps
    image = ImageOps.exif_transpose(image) or image
    if image.mode.startswith("I"):
        a = np.asarray(image)
        low, high = (int(a.min()), int(a.max())) if a.size else (0, 0)
        if low < 0 or high > 65535:
            raise ValueError(f"images: a PIL image of mode {image.mode} from {low} to {high}, "
                             "expected 16 bits, 0 to 65535")
        return (a >> 8).astype(np.uint8)[:, :, None]
    if image.mode == "F":
        raise ValueError("images: a PIL image of mode F, whose range nothing says; expected L or "
                         "RGB, or an array of floats in [0, 1]")
    alpha = image.mode in ("PA", "La", "RGBa") or "transparency" in image.info
    if alpha or image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if alpha else "L" if image.mode == "1" else "RGB")
    a = np.asarray(image, np.uint8)
    return a if a.ndim == 3 else a[:, :, None]


def _one_by_one(images: Images, grey: bool) -> Iterator[Any]:
    """Paths, PIL images, contents of files and arrays [h, w, c], each one image."""
    if isinstance(images, (str, bytes, os.PathLike)) or _is_pil(images):
        yield images
    elif hasattr(images, "read"):                               # an open file
        data = images.read()
        if not isinstance(data, bytes):
            raise TypeError("images: a file that is open as text; open(path, 'rb') reads pictures")
        yield memoryview(data)
    elif isinstance(images, np.ndarray) or hasattr(images, "__array__"):
        a = np.asarray(images)
        if a.ndim == 1 and a.dtype.kind in "OSU":               # of paths: a column of a table
            for image in a.tolist():
                yield from _one_by_one(image, grey)
        else:
            yield from _split(a, grey)
    elif hasattr(images, "__iter__"):
        for image in images:
            yield from _one_by_one(image, grey)
    else:
        raise TypeError(f"images: {type(images).__name__}, expected paths, PIL images or arrays")


def _split(a: np.ndarray, grey: bool) -> Iterator[np.ndarray]:
    """Arrays [h, w, c] of an array with one or more images. Channels are the axis of length 1 to 4,
    which no image has as its side. A grey model's [3, h, w] are three images, as its [5, h, w] are
    five."""
    shape = a.shape
    if a.ndim == 2:
        yield a[:, :, None]
    elif a.ndim == 3 and shape[2] <= 4:
        yield a
    elif a.ndim == 3 and shape[0] <= 4 and not grey:
        yield a.transpose(1, 2, 0)
    elif a.ndim == 3:
        for image in a:
            yield image[:, :, None]
    elif a.ndim == 4 and (shape[1] <= 4) != (shape[3] <= 4):
        for image in a.transpose(0, 2, 3, 1) if shape[1] <= 4 else a:
            yield image
    else:
        raise ValueError(f"images: an array of shape {shape}; expected [h, w], [h, w, c], "
                         "[c, h, w], [n, h, w], [n, h, w, c] or [n, c, h, w]")


def _from_floats(a: np.ndarray, m: "Model") -> np.ndarray:
    expected = (m.side, m.side, m.channels)
    if a.shape != expected:
        raise ValueError(f"images: floats of shape {a.shape} (h, w, c), expected {expected}; "
                         "bytes (uint8) may have any size")
    low, high = float(a.min()), float(a.max())
    if not (low >= -0.5 and high <= 1.5):
        raise ValueError(f"images: floats from {low:g} to {high:g}, expected [0, 1]")
    return a.astype(np.float32).transpose(2, 0, 1) * np.float32(2) - np.float32(1)


def _convert(image: Any, m: "Model", dst: np.ndarray) -> None:
    if isinstance(image, memoryview) or (isinstance(image, bytes)
                                         and image.startswith(_SIGNATURES)):
        m._decode(bytes(image), "a picture in memory", dst)
        return
    if isinstance(image, (str, bytes, os.PathLike)):
        m._load_file(path_bytes(image), dst)
        return
    a = _from_pil(image) if _is_pil(image) else image
    if not a.size:
        raise ValueError(f"images: an array of shape {a.shape} (h, w, c) has no pixels")
    if np.issubdtype(a.dtype, np.floating):
        dst[:] = _from_floats(a, m)
    elif a.dtype != np.uint8 and a.dtype != np.bool_:
        raise ValueError(f"images: an array of {a.dtype}, expected uint8, or floats in [0, 1]")
    elif a.dtype == np.uint8 and a.shape == (m.side, m.side, m.channels):
        dst[:] = a.transpose(2, 0, 1).astype(np.float32) / np.float32(127.5) - np.float32(1)
    else:
        m._decode(png(a.astype(np.uint8) * 255 if a.dtype == np.bool_ else a), "an array", dst)


def inputs(images: Images, m: "Model", at_once: int,
           errors: Optional[Dict[int, str]] = None) -> Iterator[np.ndarray]:
    """The images in batches of at most at_once, in order. A batch is reused for the next one.

    errors: gets the message of each picture that cannot be read, which is grey then; None: the
    first one is raised."""
    batch = np.empty((at_once, m.channels, m.side, m.side), np.float32)
    n = 0
    for i, image in enumerate(_one_by_one(images, m.channels == 1)):
        try:
            _convert(image, m, batch[n])
        except (Error, OSError) as e:                           # OSError: PIL's
            if errors is None:
                raise
            errors[i] = str(e)
            batch[n] = 0
        n += 1
        if n == at_once:
            yield batch
            n = 0
    if n:
        yield batch[:n]


def to_bytes(x: np.ndarray) -> np.ndarray:
    """Images [n, c, h, w] in [-1, 1] as uint8 [n, h, w, c], rounded as in the program's pictures."""
    v = np.clip(np.nan_to_num(x, nan=-1), -1, 1) + np.float32(1)
    return np.ascontiguousarray(
        (v * np.float32(127.5) + np.float32(0.5)).astype(np.uint8).transpose(0, 2, 3, 1))


__all__: List[str] = ["Images", "inputs", "png", "to_bytes"]
