"""Outputs that may become one point: two views of an example are pulled together, and nothing keeps examples apart.

A loss that compares outputs of the model with each other, example by example, is smallest where all outputs are alike.
A stop_gradient on one side, other examples as negatives, or a term for the spread prevents it. Where there is none of
these, the pairs are torn: if unrelated views are pulled together as well as those of one example, the training needs to
know nothing about its inputs. Labels that say how near a pair should be keep outputs apart, and so does a loss that
ranks the two.
"""

import dataclasses
import time
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
_SAME, _ORDERED = 1e-6, 0.5
_COMPARES = ("sub", "mul")


def check_collapse(training: Training, budget_s: float = np.inf) -> None:
    """Raises if a loss of pairs of outputs falls as well when the pairs are torn, if there is time to see it."""
    task, batch = training.task, training.batch()
    is_plain = not (task.has_key or task.has_state or task.prepare or task.memory is not None)
    if task.targets is not None or not is_plain or task.batch_axis != 0 or (views := _views(batch)) is None:
        return
    if not _is_by_example(training) or not _compares_outputs(training):
        return
    if (course := _course(training, budget_s)) is None:
        return
    params, first, ours = course
    if any(_has_labels(training, each, views) for each in (training.params, params)):
        return
    if first - ours <= _FALLS * abs(first) or _has_order(training, params, views, first - ours):
        return

    def tear(params: Any, batch: Any, key: Any) -> Any:
        return _with(batch, {views[1]: jnp.roll(jax.tree.leaves(batch)[views[1]], 1, 0)})

    torn_apart = _course(Training(dataclasses.replace(task, prepare=tear), training.config))
    assert torn_apart is not None
    _, other, torn = torn_apart
    if torn < ours + _NEAR * (max(first, other) - ours):
        fail(
            "targets",
            "the outputs can collapse: the loss compares outputs with each other, both with a gradient, and is "
            f"smallest where all are alike. In {_STEPS} steps it falls from {first:.3g} to {ours:.3g}, and to "
            f"{torn:.3g} if each example is compared with another one",
            "a stop_gradient on the side that is the target, or what else keeps examples apart (negatives, a term for "
            "the spread)",
        )


def _course(training: Training, budget_s: float = np.inf) -> tuple[Any, float, float] | None:
    """The parameters after some steps, the loss at the beginning and then; None if two such trainings take too long."""
    state, losses = training.state, []
    for number in range(_STEPS):
        started = time.perf_counter()
        state, metrics = training.step(state)
        losses.append(metrics["loss"])
        if number < 2:  # The first step compiles.
            jax.block_until_ready(state)
        if number == 1 and 2 * _STEPS * (time.perf_counter() - started) > budget_s:
            return None
    return state.params, float(losses[0]), float(np.mean([float(each) for each in losses[-_LAST:]]))


def _views(batch: Any) -> tuple[int, int] | None:
    """The places of two arrays of one shape that are not equal."""
    leaves = jax.tree.leaves(batch)
    for at, one in enumerate(leaves):
        for before, other in enumerate(leaves[:at]):
            is_pair = (
                is_float(one) and is_float(other) and np.ndim(one) > 1 and np.shape(one) == np.shape(other)
            )
            if is_pair and not np.array_equal(one, other):
                return before, at
    return None


def _with(batch: Any, others: dict[int, Any]) -> Any:
    """A batch with other arrays at some places."""
    leaves, structure = jax.tree.flatten(batch)
    return jax.tree.unflatten(structure, [others.get(at, leaf) for at, leaf in enumerate(leaves)])


def _has_labels(training: Training, params: Any, views: tuple[int, int]) -> bool:
    """Whether it matters for the loss to which pair another array of the batch belongs: it says how near they should
    be, and not all of them can be alike."""
    batch, loss = training.batch(), jax.jit(training.one_loss)
    before = float(loss(params, batch))
    rolled = [
        float(loss(params, _with(batch, {at: jnp.roll(leaf, 1, 0)})))
        for at, leaf in enumerate(jax.tree.leaves(batch))
        if at not in views
    ]
    return any(abs(each - before) > _SAME * abs(before) for each in rolled)


def _has_order(training: Training, params: Any, views: tuple[int, int], fall: float) -> bool:
    """Whether a trained loss ranks the two views, such as a preferred and a rejected answer: what was learned is lost
    when they change places."""
    batch, loss = training.batch(), jax.jit(training.one_loss)
    one, other = (jax.tree.leaves(batch)[at] for at in views)
    swapped = _with(batch, {views[0]: other, views[1]: one})
    return abs(float(loss(params, swapped)) - float(loss(params, batch))) > _ORDERED * fall


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
        # A product with one number of each example is one with its weight.
        axes = 1 if eqn.primitive.name == "sub" else 2
        if sum(learned) == 1 and all(len(jaxprs.shape(program.source(atom))) >= axes for atom in eqn.invars):
            return False
        both |= all(learned) and program.source(eqn.invars[0]) is not program.source(eqn.invars[1])
    return both
