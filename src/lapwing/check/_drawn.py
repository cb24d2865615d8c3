"""Batches that a function draws: labels that belong to other inputs, and rows of a table that never come.

A function of a key has no table to look at, but its batches can be put together to one. What it reads from a table that
it holds is seen in its program, with the numbers of the rows in many steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lapwing import jaxprs

from ._influence import is_drawable
from ._jaxprs import place
from ._partition import by_path
from ._program import Program, read
from ._relation import Pairs, Relation, has_names, pairs_in, relation
from ._report import fail

_SHARE, _ROWS = 0.2, 64
_FEWEST_VALUES = 64


def check_drawn_pairs(batches: Sequence[PyTree], targets: Callable[[Any], Any]) -> str:
    """Targets must have something to do with their inputs, where inputs are a few numbers without structure, or where
    the targets are the same in all batches."""
    table = _pooled(batches)
    pairs = None if table is None else pairs_in(table, targets)
    if pairs is None:
        return ""
    inputs, goals = pairs
    each = [np.asarray(targets(batch)) for batch in batches]
    are_fixed = all(np.array_equal(one, each[0]) for one in each) and np.ptp(each[0]) > 0
    are_numbers = all(len(np.unique(column)) > _FEWEST_VALUES for column in inputs.T) and not has_names(table)
    found = relation(inputs, goals)
    if (are_fixed and not found.is_clear) or (are_numbers and found.is_excluded):
        _fail(found, are_fixed)
    return "inputs and targets are related" if found.is_clear else ""


def drawn_pairs(batches: Sequence[PyTree], targets: Callable[[Any], Any]) -> Pairs | None:
    """The inputs and targets of some batches, put together."""
    table = _pooled(batches)
    return None if table is None else pairs_in(table, targets)


def check_prepared(raw: Pairs, prepared: Pairs) -> str:
    """An augmentation must not take away what the inputs say about their targets."""
    before, after = relation(*raw), relation(*prepared)
    if before.is_clear and after.is_excluded and before.examples >= after.examples:
        fail(
            "labels",
            f"Task.prepare takes away what the inputs say about their targets: in the data they are related "
            f"(correlation {before.score:.2g}), and after it no more than permuted targets ({after.examples} examples)",
            "the augmentation: it changes what is asked for (a flip of what has a direction, a crop of what is small), "
            "and the labels do not follow; or it puts inputs and labels in different orders",
        )
    return "inputs and targets are related" if after.is_clear else ""


def _pooled(batches: Sequence[PyTree]) -> PyTree | None:
    leaves = [{path: np.asarray(leaf) for path, leaf in by_path(each, "batch").items()} for each in batches]
    if any(leaf.ndim == 0 for leaf in leaves[0].values()) or not all(
        map(is_drawable, jax.tree.leaves(batches[0]))
    ):
        return None
    if len({len(leaf) for leaf in leaves[0].values()}) != 1:
        return None
    return jax.tree.unflatten(
        jax.tree.structure(batches[0]),
        [np.concatenate([each[path] for each in leaves]) for path in leaves[0]],
    )


def _fail(found: Relation, are_fixed: bool) -> None:
    why = "; the targets are the same in all batches, and the inputs are not" if are_fixed else ""
    fail(
        "labels",
        f"the targets have nothing to do with their inputs: what {found.columns} columns say about them is no more "
        f"than about permuted targets ({found.examples} examples){why}. The pairs seem to be torn",
        "where inputs and targets are drawn: with one index, one permutation and one key for both",
    )


def check_rows(source: Callable[[Any, Any], Any], keys: Sequence[Any], steps: Sequence[int]) -> None:
    """`source(key, step)` must read more than the first rows of the tables that it holds; with the keys of steps from
    the whole training."""
    program = read(source, key=keys[0], step=jnp.zeros((), jnp.int32))
    found = list(_indices(program))
    if not found:
        return
    run = program.evaluator([index for _, index, _ in found])
    columns = zip(
        *(run(key, jnp.asarray(step, jnp.int32)) for key, step in zip(keys, steps, strict=True)), strict=True
    )
    for (eqn, _, rows), values in zip(found, columns, strict=True):
        used = np.concatenate([np.ravel(each) for each in values])
        low, high = int(used.min()), int(used.max())
        if high - low + 1 < _SHARE * rows and used.size > 4 * (high - low + 1):
            fail(
                "fresh_data",
                f"the batches of {len(steps)} steps from the whole training read rows {low} to {high} of a table that "
                f"has {rows} ({place(eqn)}): {1 - (high - low + 1) / rows:.0%} of the data never come",
                "the bound of the index: the number of rows, not the size of a batch",
                [place(eqn)],
            )


def _indices(program: Program) -> list[tuple[Any, Any, int]]:
    """Where rows of a constant table are read: the equation, the rows, and how many there are."""
    constants = set(program.closed.jaxpr.constvars)
    moving = program.dependent("key") | program.dependent("step")
    found = []
    for eqn in program.eqns:
        if eqn.primitive.name != "gather" or eqn.invars[1] not in moving:
            continue
        table, numbers = program.source(eqn.invars[0]), eqn.params["dimension_numbers"]
        rows = jaxprs.shape(eqn.invars[0])[0] if jaxprs.shape(eqn.invars[0]) else 0
        if table in constants and numbers.start_index_map == (0,) and rows >= _ROWS:
            found.append((eqn, eqn.invars[1], rows))
    return found
