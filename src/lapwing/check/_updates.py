"""Leaves that training does not change: by the optimizer, the dtype, or a gradient that is zero at the start."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lapwing.core import format_list

from ._frozen import frozen_by_the_optimizer
from ._partition import by_path
from ._report import fail
from ._rounded import rounded_away
from ._training import Training

# Enough for an optimizer that accumulates gradients, and for several layers that start at zero.
_UPDATES = 64


def check_updates(training: Training, idle: Sequence[str]) -> list[str]:
    """A leaf with a gradient must also change: that depends on the optimizer, clipping and the dtype. Returns those
    that the optimizer freezes on purpose, while it trains others."""
    state, before = training.state, by_path(training.params, "params")
    trained = [path for path in training.trained_paths() if path not in idle]
    still, norm = trained, np.nan
    for _ in range(_UPDATES):
        state, metrics = training.step(state)
        after = by_path(state.params, "params")
        still = [path for path in still if np.array_equal(before[path], after[path])]
        norm = float(metrics["gradient_norm"])
        if not still:
            return []
    if len(still) < len(trained) and np.isfinite(norm):
        frozen = frozen_by_the_optimizer(training, still)
        still = [path for path in still if path not in frozen]
        if not still:
            return frozen
    _fail(training, state.params, still, norm)
    return []


def _fail(training: Training, params: Any, still: Sequence[str], norm: float) -> None:
    look = "the optimizer (a label or a mask that gives it no update), and a learning rate, schedule or clip that is "
    look += "too small for its dtype (bfloat16 keeps 8 bits)"
    why = ""
    if not np.isfinite(norm):
        look = f"the norm of the gradient, which is {norm}: training skips such an update (see check.scale)"
    elif zero := _without_gradient(training, params, still):
        why = f": the gradient of {format_list(zero, 4)} is exactly zero where the training begins, and stays so"
        look = "the initial values: what it is multiplied by is zero too, such as the other factor of a low-rank "
        look += "adapter; begin with one factor at zero, and not with both"
    elif rounded := rounded_away(training, still):
        path, each = next(iter(rounded.items()))
        why = f": they are too small for {each.dtype}, which rounds them away (an update of {each.update:.2g} to "
        why += f"{path}, where its numbers are {each.spacing:.2g} apart)"
        look = "the dtype of the parameters: keep them in float32 and cast them to bfloat16 in the loss, as "
        look += "FitConfig(precision='bfloat16') does, or raise the learning rate"
    fail(
        "dead_parameters",
        f"{_UPDATES} updates leave every bit of {format_list(still)} unchanged{why}",
        look,
        still,
    )


def _without_gradient(training: Training, params: Any, paths: Sequence[str]) -> list[str]:
    """Of these leaves, those whose gradient is zero where the training begins and with these later parameters."""
    gradient = jax.jit(training.gradient)
    found = [by_path(gradient(each, training.batch()), "params") for each in (training.params, params)]
    return [path for path in paths if not any(np.any(each[path]) for each in found)]
