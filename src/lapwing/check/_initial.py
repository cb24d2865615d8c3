"""The loss before the first step, compared with that of a uniform guess.

A loss of two or three times a uniform guess is common: with ordinary weights and inputs that are not normalized, with
tied embeddings, with a temperature, and with a loss that is a weighted sum. So what is far above is tried with smaller
matrices, and only a cause that shows there is an error: weights that are too large, or a loss that is a sum. With all
matrices at zero a model guesses uniformly, which gives the loss of such a guess in the units of the task.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ._influence import axes_of
from ._partition import is_float
from ._report import CheckError, CheckInputError, fail
from ._training import Training

_FAR = 3.5  # Times a uniform guess: logits with a standard deviation of about 4 among 3 classes, 6 among 10.
_SMALLER, _UNITS = 0.1, 1.05
_FEWEST = 4  # A sum of so few losses may be one of several heads.


def check_initial_loss(
    training: Training, start: float, classes: int | None, cause: Callable[[], str | None]
) -> str:
    """Returns what is unusual and no error. `cause` says what the program of the loss has wrong, if anything."""
    if not math.isfinite(start):
        fail(
            "can_learn",
            f"the initial loss is {start}",
            "the scale of the initial parameters and of the inputs",
        )
    if classes is None:
        return ""
    if classes < 2:
        raise CheckInputError(f"expected two classes or more, found classes={classes}")
    uniform = math.log(classes)
    # The usual initialization has logits of size 1, which cost about half as much again as a uniform guess.
    if 0.5 * uniform <= start <= uniform + max(1.0, 0.5 * uniform):
        return ""
    what = (
        f"the initial loss is {start:.6g}, but a uniform guess among {classes} classes has log({classes}) = "
    )
    what += f"{uniform:.4g}"
    if (shown := cause()) is not None:
        raise CheckError("can_learn", f"{what}; its program shows why: {shown}")
    if start < uniform:
        _fail(
            f"{what}: the model is already right",
            "targets among the inputs, and whether the loss is a mean over examples",
        )
    guess = _loss_with(training, 0.0)
    if _is_summed(training, guess / uniform):
        _fail(
            f"{what}: the loss is a sum over examples or tokens, of which a uniform guess has {guess:.4g}",
            "whether the loss is a mean over examples (and over tokens), and padding that is counted",
        )
    own = guess if math.isfinite(guess) and guess > uniform else uniform
    if start > _FAR * own and _loss_with(training, _SMALLER) < 0.5 * start:
        _fail(
            f"{what}: the model is confident and wrong, and is not with smaller weights",
            "the scale of the last layer's initial weights, or of all of them (a normal number divided by the root of "
            "the number of inputs), and of the inputs",
        )
    times = f"the initial loss is {start / uniform:.1f} times that of a uniform guess, log({classes})"
    if own > _UNITS * uniform:
        times += f"; in the units of this loss, which may be a weighted sum, such a guess has {own:.3g}"
    return times


def other_units(training: Training, classes: int | None) -> str:
    """Says that the loss is no plain cross-entropy among the classes, since a uniform guess has more; or nothing."""
    guess, uniform = (0.0, math.inf) if classes is None else (_loss_with(training, 0.0), math.log(classes))
    if not _UNITS * uniform < guess < math.inf:
        return ""
    return (
        f"; a uniform guess has {guess:.4g} and not log({classes}), so the loss is no plain cross-entropy of the "
        "targets, and is not compared with that of a model that ignores its inputs"
    )


def _fail(what: str, look: str) -> None:
    fail("can_learn", what, look)


def _loss_with(training: Training, factor: float) -> float:
    """The loss of the batch with all matrices of the parameters multiplied by a factor; nan if it has none."""
    leaves, structure = jax.tree.flatten(training.params)
    is_matrix = [is_float(leaf) and np.ndim(leaf) > 1 for leaf in leaves]
    if not any(is_matrix):
        return math.nan
    smaller = [factor * leaf if yes else leaf for leaf, yes in zip(leaves, is_matrix, strict=True)]
    return float(jax.jit(training.one_loss)(jax.tree.unflatten(structure, smaller), training.batch()))


def _is_summed(training: Training, times: float) -> bool:
    """Whether the loss doubles if every example is there twice, or a uniform guess costs as many times the logarithm as
    there are examples or tokens."""
    batch = training.batch()
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(batch)]
    counts = {math.prod(shape[:axes]) for shape in shapes for axes in range(1, len(shape) + 1)}
    if any(count > _FEWEST and abs(times / count - 1) < 1e-3 for count in counts):
        return True
    try:
        axes = axes_of(training.task.batch_axis, batch, "batch_axis")
        leaves, structure = jax.tree.flatten(batch)
        twice = [
            leaf if axis is None else jnp.concatenate([leaf, leaf], axis)
            for leaf, axis in zip(leaves, axes, strict=True)
        ]
        once, both = (
            float(jax.jit(training.one_loss)(training.params, each))
            for each in (batch, jax.tree.unflatten(structure, twice))
        )
    except Exception:
        return False  # The loss takes no other number of examples.
    return both > 1.9 * once
