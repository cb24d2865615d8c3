"""Experiments by name (`lapwing list`) or by file: `lapwing train NAME` or `lapwing train FILE.py` trains one.

An experiment is a module or a file with `Config`, a dataclass whose fields are the options of the command, each
documented by a line below it, and `build(config)`, which returns the `lapwing.task.Task`; `find` says what else is
accepted. The modules here are Lapwing's own. Reading this registry does not import jax.
"""

from typing import TYPE_CHECKING, Any

from lapwing.core import Entry

from ._evaluate import Evaluated, Trained, evaluate_trained, load_trained
from ._find import REGISTRY, Experiment, Known, find, known, located, short, split
from ._keep import changed_source, keep_source, read_source
from ._source import ExperimentError, Source, execute, shorten_traceback

__all__ = [
    "REGISTRY",
    "Entry",
    "Evaluated",
    "Experiment",
    "ExperimentError",
    "Known",
    "Source",
    "Trained",
    "changed_source",
    "evaluate_trained",
    "execute",
    "find",
    "keep_source",
    "known",
    "load_model",
    "load_trained",
    "located",
    "read_source",
    "short",
    "shorten_traceback",
    "split",
]


if TYPE_CHECKING:
    from ._model import load_model


def __getattr__(name: str) -> Any:
    if name == "load_model":  # It imports jax.
        from ._model import load_model

        return load_model
    raise AttributeError(f"module 'lapwing.experiments' has no attribute {name!r}")
