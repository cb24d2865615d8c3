"""Tables whose rows tell more than they should: a column made of the targets, a validation set that was scaled by
itself, and groups of rows that were split between training and validation.

Each of these is seen in the numbers, with a certainty that does not come by chance: a column that equals the means of
the targets far more closely than means of so few numbers can, means of exactly 0 in a part that had no part in the
scaling, rows that are many times nearer to a few others than to all the rest.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ._relation import pairs_in
from ._report import fail

_GROUPS, _EXACT, _VARIED = 16, 0.05, 0.5
_VALUES, _CENTRED, _SPREAD = 16, 1e-2, 1e-3
_FEW, _GAP, _HELD, _TRAINED = 24, 4.0, 512, 4096
_SAME = 1e-9  # A square of a distance below the rounding of its terms.
_FEWEST_HELD = 32


def check_encoded(tables: list[Any], targets: Callable[[Any], Any]) -> None:
    """Raises if a column of the inputs is the mean of the targets of those rows that share its value: a category that
    was replaced by the mean target of its rows, these included."""
    parts = [pair for table in tables if (pair := pairs_in(table, targets)) is not None]
    if not parts or any(goals.ndim != 1 for _, goals in parts):
        return
    together = np.concatenate([each for each, _ in parts]), np.concatenate([goals for _, goals in parts])
    for name, (inputs, goals) in (("training and validation", together), ("training", parts[0])):
        for number, column in enumerate(inputs.T):
            groups = _means_of_targets(column, goals.astype(np.float64))
            if groups > 0 and not _is_balanced(inputs, number):
                fail(
                    "leakage",
                    f"column {number} of the inputs is the mean of the targets of the rows that share its value "
                    f"({groups} groups of rows in {name}): each row has a part of its own target among its inputs",
                    "how a category was encoded by its targets: use other rows than those that are trained and tested "
                    "on (for each fold the other folds, and for the validation only training rows)",
                    [f"column {number}"],
                )


def _means_of_targets(column: np.ndarray, goals: np.ndarray) -> int:
    """In how many groups of equal values a column is the mean of the targets, up to shift and scale; 0 if it is not.

    >>> random = np.random.default_rng(0)
    >>> town, price = random.permutation(200) % 40, random.normal(size=200)
    >>> mean = np.bincount(town, price) / np.bincount(town)
    >>> _means_of_targets(mean[town], price), _means_of_targets(mean[town] + 0.05 * random.normal(size=40)[town], price)
    (40, 0)
    """
    values, group, counts = np.unique(column, return_inverse=True, return_counts=True)
    means = np.bincount(group, goals) / counts
    squares = np.bincount(group, (goals - means[group]) ** 2)
    used = (counts >= 2) & (
        squares > 1e-9 * np.var(goals)
    )  # Of a column that is the target, all groups are even.
    if used.sum() < _GROUPS or np.std(values[used]) == 0:
        return 0
    chance = np.sqrt(np.mean(squares[used] / (counts[used] - 1) / counts[used]))
    if np.std(means[used]) < _VARIED * chance:
        return 0  # Pairs of two classes have the same mean, whatever the column is.
    slope, shift = np.polyfit(values[used], means[used], 1)
    error = np.sqrt(np.mean((slope * values[used] + shift - means[used]) ** 2))
    return int(used.sum()) if error < _EXACT * chance else 0


def _is_balanced(inputs: np.ndarray, number: int) -> bool:
    """Whether the groups of equal values of a column are of one size, and all other columns have the same mean in each:
    a grid, where the means of a sum are its summands.

    >>> grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    >>> _is_balanced(grid, 0), _is_balanced(grid[1:], 0)
    (True, False)
    """
    group = np.unique(inputs[:, number], return_inverse=True)[1]
    counts, others = np.bincount(group), np.delete(inputs, number, axis=1)
    if not others.shape[1] or np.ptp(counts):
        return False
    means = np.stack([np.bincount(group, each) / counts for each in others.T])
    return bool(np.all(np.ptp(means, axis=1) <= 1e-6 * others.std(0)))


def check_scaled_apart(trained: Any, held_out: Any) -> None:
    """Raises if the columns of the training and those of the validation have each a mean of 0 and a spread of 1: the
    second part was standardized by its own statistics."""
    ours, theirs = jax.tree.leaves(trained), jax.tree.leaves(held_out)
    for one, other in zip(ours, theirs, strict=True):
        one, other = (np.asarray(each) for each in (one, other))
        if (
            one.ndim != 2
            or one.dtype.kind != "f"
            or other.shape[1:] != one.shape[1:]
            or len(other) < _FEWEST_HELD
        ):
            continue
        pairs = [(a, b) for a, b in zip(one.T, other.T, strict=True) if len(np.unique(b)) > _VALUES]
        if len(pairs) >= 2 and all(_is_standard(a) and _is_standard(b) for a, b in pairs):
            fail(
                "leakage",
                f"the validation was standardized by its own statistics: as in the training, the mean of each of its "
                f"{len(pairs)} columns is 0 and their standard deviation 1, exactly; what tells the two apart is gone, "
                "and the model gets other numbers in use",
                "the scaling of the validation: by the mean and standard deviation of the training rows",
            )


def _is_standard(column: np.ndarray) -> bool:
    """A mean of 0 and a standard deviation of 1, more exactly than another part of the same numbers has them."""
    column = column.astype(np.float64)
    slack = _CENTRED / np.sqrt(len(column))
    spreads = (column.std(), column.std(ddof=1))
    return bool(abs(column.mean()) < slack and min(abs(each - 1) for each in spreads) < min(slack, _SPREAD))


def check_groups(trained: Any, held_out: Any, targets: Callable[[Any], Any]) -> None:
    """Raises if most held-out rows belong to a small group of training rows, all of one target: recordings of one
    source, which were split row by row."""
    ours, theirs = pairs_in(trained, targets), pairs_in(held_out, targets)
    if ours is None or theirs is None or ours[1].ndim != 1:
        return
    rows, goals = _some(*ours, _TRAINED)
    tests, asked = _some(*theirs, _HELD)
    if rows.shape[1] != tests.shape[1] or rows.shape[1] < 3 or len(rows) < 4 * _FEW:
        return
    near, far = _nearest(rows, tests)
    ratios = far[:, 1:] / far[:, :-1]
    split = ratios.max(1) > _GAP
    if split.mean() <= 0.5:
        return
    sizes = ratios.argmax(1) + 1
    is_alike = ((goals[near] == asked[:, None]) | (np.arange(near.shape[1]) >= sizes[:, None])).all(1)
    size, classes = float(np.median(sizes[split])), len(np.unique(goals))
    # Each class may be one group, far from the others: then there are as many of them.
    is_class = goals.dtype.kind in "iub" and classes * size > len(rows) / 4
    if is_alike[split].mean() > 0.95 and not is_class:
        fail(
            "leakage",
            f"{split.mean():.0%} of the held-out rows are nearly the same as a few training rows (about {size:.0f} "
            f"each, which are {np.median(ratios.max(1)[split]):.0f} times nearer than all others and have the same "
            "target): rows of one source are on both sides of the split, and learning them by heart is enough",
            "how the data are split: by source (patient, speaker, scene), so that all rows of one are in the same part",
        )


def _some(rows: np.ndarray, goals: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.random.default_rng(0).permutation(len(rows))[:most]
    return rows[chosen], goals[chosen]


def _nearest(rows: np.ndarray, tests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest rows of each test, the nearest first, and how far they are; each column counts by its spread."""
    spread = rows.std(0)
    one, other = (each[:, spread > 0] / spread[spread > 0] for each in (rows, tests))
    squares = (other**2).sum(1)[:, None] + (one**2).sum(1)[None] - 2 * other @ one.T
    near = np.argpartition(squares, _FEW, axis=1)[:, : _FEW + 1]
    near = np.take_along_axis(near, np.argsort(np.take_along_axis(squares, near, 1), 1), 1)
    return near, np.sqrt(np.maximum(np.take_along_axis(squares, near, 1), _SAME))
