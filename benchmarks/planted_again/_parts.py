"""What the programs share: the parts of the first set, and a split of arrays."""

from typing import Any

import jax
import numpy as np

from benchmarks.planted_mistakes._parts import (
    apply,
    blobs,
    config,
    forward,
    gru,
    gru_step,
    layers,
    linear,
    nll,
    planted,
    run_gru,
)
from lapwing.task import Arrays

__all__ = [
    "apply",
    "blobs",
    "config",
    "forward",
    "gru",
    "gru_step",
    "layers",
    "linear",
    "nll",
    "planted",
    "run_gru",
    "split_rows",
]


def split_rows(arrays: Any, train: np.ndarray, size: int = 32) -> dict[str, Any]:
    """Training data and validation of a task: the rows where `train` is true, and the others."""
    kept, held = (jax.tree.map(lambda leaf, rows=rows: leaf[rows], arrays) for rows in (train, ~train))
    return {"data": Arrays(kept, size), "validation": Arrays(held, size)}
