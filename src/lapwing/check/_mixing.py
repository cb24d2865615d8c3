"""Examples that are mixed on purpose before the loss: mixup, cutmix, and their kin.

That an example depends on another does not tell such a mixture from an error. A mixture keeps a part of each example,
adds a part of one other, entry by entry with weights between 0 and 1, and is drawn again for each step. Swapped axes,
statistics of the batch and what is carried from one example to the next are none of this.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing import jaxprs

from ._influence import along, axes_of, changes, common_size, redrawn
from ._partition import by_path, is_float
from ._program import among, read
from ._training import Training

_EXAMPLES, _OFF = 6, 1e-2


class _Shares(NamedTuple):
    """The parts of one example in the outputs: its own, and that of each other output in which it is."""

    own: float
    others: dict[int, float]


def mixture(prepare: Callable[[PyTree, int], PyTree], batch: PyTree, batch_axis: Any, seed: int = 0) -> str:
    """Says which arrays `prepare(batch, step)` mixes; empty if it is no such mixture."""
    axes = axes_of(batch_axis, batch, "batch_axis")
    random = np.random.default_rng(seed)
    chosen = random.permutation(common_size(batch, axes, "batch_axis"))[:_EXAMPLES].tolist()
    others = [redrawn(batch, axes, example, random) for example in chosen]
    drawn: list[list[dict[str, _Shares]]] = [[], []]
    mixed: set[str] = set()
    for step, shares in enumerate(drawn):
        before = prepare(batch, step)
        for example, other in zip(chosen, others, strict=True):
            after = prepare(other, step)
            reached = _reached(before, after, axes_of(batch_axis, before, "batch_axis"), example)
            found = _shares((batch, other), (before, after), axes, example)
            if found is None or any(len(each) > 1 for each in reached.values()):
                return ""
            mixed |= {path for path, each in reached.items() if each}
            shares.append(found)
    are_mixed = any(each.others for shares in drawn[0] for each in shares.values())
    if not are_mixed or drawn[0] == drawn[1]:
        return ""
    return f"prepare mixes each example with one other, drawn at random: {', '.join(sorted(mixed))}"


def _reached(before: PyTree, after: PyTree, axes: list[int | None], example: int) -> dict[str, set[int]]:
    """The other examples that change in each array."""
    flags = zip(by_path(before, "batch"), changes(before, after), axes, strict=True)
    return {
        path: set(np.flatnonzero(along(changed, axis)).tolist()) - {example}
        for path, changed, axis in flags
        if axis is not None
    }


def _shares(inputs: Any, outputs: Any, axes: list[int | None], example: int) -> dict[str, _Shares] | None:
    """The parts of an example in each array that comes out with the shape with which it goes in; None if they are no
    weights between 0 and 1."""
    old, new = (by_path(each, "batch") for each in inputs)
    before, after = (by_path(each, "batch") for each in outputs)
    found = {}
    for (path, leaf), axis in zip(old.items(), axes, strict=True):
        same = path in before and is_float(leaf) and np.shape(before[path]) == np.shape(leaf)
        if axis is None or not same:
            continue
        change = np.take(np.asarray(new[path], np.float64) - np.asarray(leaf, np.float64), example, axis)
        rows = np.moveaxis(
            np.asarray(after[path], np.float64) - np.asarray(before[path], np.float64), axis, 0
        )
        size = float(np.abs(change).max(initial=0.0))
        clear = np.abs(change) > _OFF * size
        if not clear.any():
            continue
        weights = rows[:, clear] / change[clear]
        beside = float(np.abs(rows[:, change == 0]).max(initial=0.0))
        if weights.min() < -_OFF or weights.max() > 1 + _OFF or beside > _OFF * size:
            return None
        parts = {row: round(float(part), 3) for row, part in enumerate(weights.mean(1)) if part > 1e-6}
        own = parts.pop(example, 0.0)
        if own == 0.0 and parts:
            return None  # It is moved, and not mixed.
        found[path] = _Shares(own, parts)
    return found


def handed_on(training: Training) -> list[str]:
    """The arrays of a batch that `prepare` returns as they are and has made another one of, such as the labels of
    mixed targets."""
    prepare = training.task.prepare
    if prepare is None:
        return []
    key, raw = jax.random.key(0), training.raw_batch(0)
    program = read(prepare, params=training.params, batch=raw, key=key)
    paths = by_path(jax.eval_shape(prepare, training.params, raw, key), "batch")
    outs = dict(zip(paths, program.closed.jaxpr.outvars, strict=True))
    found = []
    for path, var in program.inputs["batch"].items():
        made = jaxprs.depends_on(program.eqns, [var]) - {var}
        if outs.get(path) is var and any(among(out, made) for out in outs.values()):
            found.append(path)
    return found
