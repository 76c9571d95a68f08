"""Joint energy-based models: train, classify, score and sample.

    import jempp
    m = jempp.open("model.safetensors")
    p = m.predict(["cat.png", "dog.jpg"])
    p.label, p.probs, p.log_px, p.known
    m.sample(16, cls="cat")                     # uint8 [16, side, side, channels]

docs/python.md describes everything; the program `jempp` computes the same with the same library.
"""

from typing import Any

from ._lib import Diverged, Error, __version__, devices
from ._model import Model, Predictions, open
from ._run import TrainResult, evaluate, read_log, train


def __getattr__(name: str) -> Any:      # jempp.torch is imported when it is first used
    if name == "torch":
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Diverged", "Error", "Model", "Predictions", "TrainResult", "__version__", "devices",
           "evaluate", "open", "read_log", "train"]
