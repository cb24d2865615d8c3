"""Examples that are in a batch several times: workers with one seed, a source that is read by each of them.

A batch of which each row is there four times has the gradient of a quarter of it. Rows of a table, words and bits come
again by chance; rows of numbers do not. With dropout or noise in the loss copies may be meant, as two views of one
example.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from ._fresh import as_numpy
from ._report import fail

_FEWEST, _DISTINCT = 3, 0.8


def check_repeated(batches: Sequence[PyTree]) -> None:
    """Raises if in all batches each row of numbers is there more than once, as often as every other.

    >>> x = np.random.default_rng(0).normal(size=(4, 6))
    >>> check_repeated([x, np.concatenate([x, x + 1])])
    >>> check_repeated([np.concatenate([x, x])])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: each example is in its batch 2 times: ...
    """
    times = [_times(batch) for batch in batches]
    if not times or min(times) < 2:
        return
    fail(
        "fresh_data",
        f"each example is in its batch {times[0]} times: of {_rows(batches[0])} examples "
        f"{_rows(batches[0]) // times[0]} are different, and the copies teach nothing",
        "the seeds of the workers that read or simulate the parts of a batch, which are the same: give each its own "
        "(for example np.random.default_rng((epoch, step, worker)))",
    )


def _rows(batch: PyTree) -> int:
    return max((len(leaf) for leaf in map(as_numpy, jax.tree.leaves(batch)) if leaf.ndim), default=0)


def _times(batch: PyTree) -> int:
    """How often each row of a batch is there; 1 where that may be chance, or rows differ in it."""
    leaves = [leaf for leaf in map(as_numpy, jax.tree.leaves(batch)) if leaf.ndim]
    count = _rows(batch)
    if not count or any(len(leaf) != count for leaf in leaves):
        return 1
    flat = [np.ascontiguousarray(leaf).reshape(count, -1) for leaf in leaves]
    rows = [b"".join(each[row].tobytes() for each in flat) for row in range(count)]
    found: dict[bytes, int] = {}
    for row in rows:
        found[row] = found.get(row, 0) + 1
    if len(found) < _FEWEST or len(set(found.values())) != 1:
        return 1
    once = [rows.index(row) for row in found]
    is_measured = any(
        each.dtype.kind == "f"
        and each.shape[1] > 1
        and len(np.unique(each[once])) >= _DISTINCT * each[once].size
        for each in flat
    )
    return count // len(found) if is_measured else 1
