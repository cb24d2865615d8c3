"""Outputs that may become one point: two views of an example are pulled together, and nothing keeps examples apart.

A loss that compares outputs of the model with each other, example by example, is smallest where all outputs are alike.
A stop_gradient on one side, other examples as negatives, or a term for the spread prevents it. Where there is none of
these, the pairs are torn: if unrelated views are pulled together as well as those of one example, the training needs to
know nothing about its inputs.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import jaxprs

from ._jaxprs import places_of
from ._partition import is_float
from ._program import among, read
from ._report import fail
from ._training import Training

_STEPS, _LAST = 200, 20
_NEAR, _FALLS = 0.1, 0.2
_COMPARES = ("sub", "mul")


def check_collapse(training: Training) -> None:
    """Raises if a loss of pairs of outputs falls as well when the pairs are torn."""
    task, batch = training.task, training.batch()
    is_plain = not (task.has_key or task.has_state or task.prepare or task.memory is not None)
    if task.targets is not None or not is_plain or task.batch_axis != 0 or (view := _view(batch)) is None:
        return
    if not _is_by_example(training) or not _compares_outputs(training):
        return

    def tear(params: Any, batch: Any, key: Any) -> Any:
        leaves, structure = jax.tree.flatten(batch)
        leaves[view] = jnp.roll(leaves[view], 1, 0)
        return jax.tree.unflatten(structure, leaves)

    first, ours = _course(training)
    other, torn = _course(Training(dataclasses.replace(task, prepare=tear), training.config))
    fall = max(first, other) - ours
    if first - ours > _FALLS * abs(first) and torn < ours + _NEAR * fall:
        fail(
            "targets",
            "the outputs can collapse: the loss compares outputs with each other, both with a gradient, and is "
            f"smallest where all are alike. In {_STEPS} steps it falls from {first:.3g} to {ours:.3g}, and to "
            f"{torn:.3g} if each example is compared with another one",
            "a stop_gradient on the side that is the target, or what else keeps examples apart (negatives, a term for "
            "the spread)",
        )


def _course(training: Training) -> tuple[float, float]:
    """The loss at the beginning of a training, and some steps later."""
    state, losses = training.state, []
    for _ in range(_STEPS):
        state, metrics = training.step(state)
        losses.append(metrics["loss"])
    return float(losses[0]), float(np.mean([float(each) for each in losses[-_LAST:]]))


def _view(batch: Any) -> int | None:
    """The place of the second of two arrays of one shape that are not equal."""
    leaves = jax.tree.leaves(batch)
    for at, one in enumerate(leaves):
        for other in leaves[:at]:
            is_pair = (
                is_float(one) and is_float(other) and np.ndim(one) > 1 and np.shape(one) == np.shape(other)
            )
            if is_pair and not np.array_equal(one, other):
                return at
    return None


def _is_by_example(training: Training) -> bool:
    """Whether the loss is the mean of those of its examples: none is compared with another."""
    batch, loss = training.batch(), jax.jit(training.one_loss)
    leaves = jax.tree.leaves(batch)
    counts = {len(leaf) for leaf in leaves if np.ndim(leaf)}
    if len(counts) != 1 or any(np.ndim(leaf) == 0 for leaf in leaves) or (count := counts.pop()) % 2:
        return False
    half = count // 2
    try:
        whole, first, second = (
            float(loss(training.params, jax.tree.map(lambda leaf, at=at: leaf[at], batch)))
            for at in (slice(None), slice(half), slice(half, None))
        )
    except Exception:
        return False  # The loss takes no other number of examples.
    return bool(np.isclose(whole, (first + second) / 2, rtol=1e-4, atol=1e-6))


def _compares_outputs(training: Training) -> bool:
    """Whether outputs of the model are compared with each other, both with a gradient, and none with the data."""
    trees: dict[str, Any] = {"params": training.params, "batch": training.batch_shapes()}
    whole = read(training.loss_as_written, **trees, opens=lambda eqn: False)
    if places_of("stop_gradient", whole.closed):
        return False
    program = read(training.one_loss, **trees)
    of_params, of_batch = program.dependent("params"), program.dependent("batch")
    both = False
    for eqn in program.eqns:
        if eqn.primitive.name not in _COMPARES or not all(among(atom, of_batch) for atom in eqn.invars):
            continue
        learned = [among(program.source(atom), of_params) for atom in eqn.invars]
        if sum(learned) == 1 and all(len(jaxprs.shape(program.source(atom))) > 1 for atom in eqn.invars):
            return False
        both |= all(learned) and program.source(eqn.invars[0]) is not program.source(eqn.invars[1])
    return both
