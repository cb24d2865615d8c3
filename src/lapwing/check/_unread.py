"""Flags of a batch that nothing reads: that documents begin here, that a sequence is over.

`dead_parameters` draws other values for the arrays of a batch, and one that has a single value in each batch offers
none. Here the programs are read: a flag or an integer for each example, with another value in another batch, should
reach something that the loss returns (its metrics and the next state too), or the prediction.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from lapwing import jaxprs
from lapwing.core import format_list

from ._influence import is_drawable
from ._partition import by_path
from ._program import Program, among
from ._report import fail


def check_unread(programs: Sequence[Program], batches: Sequence[PyTree]) -> None:
    """Raises if a flag of the batches is read by none of the programs, the first of which is that of the loss."""
    unread = [
        path
        for path in _flags(batches)
        if not any(_reads(program, path) for program in programs if path in program.inputs["batch"])
    ]
    if unread:
        fail(
            "dead_parameters",
            f"{format_list(unread)} has no effect on the loss, nor on the state or the metrics that it returns: it is "
            "the same for all examples of a batch, changes between batches, and nothing reads it",
            "where it should be used: a state that is reset where a document or an episode begins, a mask, a switch of "
            "what is trained; a number that is only kept for reference does not belong in the batch",
            unread,
        )


def _flags(batches: Sequence[PyTree]) -> list[str]:
    """Booleans and integers, one for each example, that are constant in each batch and differ between batches."""
    columns: dict[str, list[Any]] = {}
    for batch in batches:
        for path, leaf in by_path(batch, "batch").items():
            if is_drawable(leaf):
                columns.setdefault(path, []).append(np.asarray(leaf))
    sizes = {len(values[0]) for values in columns.values() if values[0].ndim > 1}
    return [
        path
        for path, values in columns.items()
        if values[0].dtype.kind in "iub"
        and values[0].ndim
        and len(values[0]) in sizes
        and len(values[0]) > 1
        and all(len(np.unique(each)) == 1 for each in values)
        and len({each.flat[0] for each in values}) > 1
    ]


def _reads(program: Program, path: str) -> bool:
    reached = jaxprs.depends_on(program.eqns, [program.inputs["batch"][path]])
    return any(among(out, reached) for out in program.closed.jaxpr.outvars)
