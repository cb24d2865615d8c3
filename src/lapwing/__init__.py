"""Faster gradients of loops in JAX, and training runs that can be steered, stopped and resumed to the same bits.

Importing this module imports nothing else: each public name loads its layer on first use, so that `lapwing --help`
or reading a run folder never waits for jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Public name -> the layer that holds it. A name that is a layer itself maps to itself.
_HOME = {
    "Laps": "timing",
    "accelerate": "loops",
    "explain": "loops",
    "scan": "loops",
    "Stopwatch": "timing",
    "Histogram": "journal",
    "Image": "journal",
    "Run": "journal",
    "Table": "journal",
}
_LAYERS = (
    "attacks",
    "check",
    "data",
    "dmm",
    "experiments",
    "journal",
    "loops",
    "models",
    "report",
    "sweep",
    "synthesis",
    "task",
    "timing",
    "train",
    "trees",
)

__all__ = [*sorted(_HOME), *_LAYERS]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from lapwing import (  # noqa: F401
        attacks,
        check,
        data,
        dmm,
        experiments,
        journal,
        loops,
        models,
        report,
        sweep,
        synthesis,
        task,
        timing,
        train,
        trees,
    )
    from lapwing.journal import Histogram, Image, Run, Table  # noqa: F401
    from lapwing.loops import accelerate, explain, scan  # noqa: F401
    from lapwing.timing import Laps, Stopwatch  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in _LAYERS:
        return importlib.import_module(f"lapwing.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"lapwing.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lapwing' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
