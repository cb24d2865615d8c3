"""Whether inputs say anything about their targets. Where pairs are torn, they do not.

One batch can be memorized whatever its pairs are, so a loss that falls shows nothing. Here targets are predicted, each
from the other examples: by their neighbours, and by kernels of several widths. Permuted targets show what is chance. A
table of measurements with few columns and many rows, in which nothing is found, is not what a training is made for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ._report import fail

_MOST, _MOST_COUNTED, _FEWEST = 320, 4096, 128
_DENSE = 300  # So many rows show a relation that explains a twentieth of the variance.
_ROWS_PER_COLUMN = 16
_MOST_COLUMNS, _MOST_TARGETS = 1024, 8
_MOST_CLASSES = 32
_PERMUTATIONS = 100
_WIDTHS, _RIDGES = (0.3, 1.0), (1e-2, 1.0)
_NEIGHBOURS = (1, 5)
_CHANCE, _CLEAR = 0.05, 0.01
_SPIKE = 8.0


@dataclass(frozen=True)
class Relation:
    """`score`: the best correlation of the targets with what the inputs of other examples predict, or with one column.
    `chance`: the share of permuted targets with a score as good."""

    score: float
    chance: float
    examples: int
    columns: int

    @property
    def is_clear(self) -> bool:
        return self.chance <= _CLEAR

    @property
    def is_excluded(self) -> bool:
        """Whether there is none that these methods could miss: many examples in few dimensions."""
        is_dense = self.examples >= max(_DENSE, _ROWS_PER_COLUMN * self.columns)
        return is_dense and self.chance > _CHANCE


Pairs = tuple[np.ndarray, np.ndarray]


def check_pairs(trained: Pairs, held_out: Pairs | None = None, are_names: bool = False) -> str:
    """Raises where inputs and targets have nothing to do with each other, and that is certain: the held-out pairs show
    a relation and the training pairs do not (or the other way round), or there is none in a table that would show it.
    Numbers that are `names` of something would not.

    >>> random = np.random.default_rng(0)
    >>> x = random.normal(size=(400, 3))
    >>> check_pairs((x, x[:, 0] ** 2))
    'inputs and targets are related'
    >>> check_pairs((x, random.permutation(x[:, 0] ** 2)))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the targets have nothing to do with their inputs: ...
    """
    ours = relation(*trained)
    theirs = relation(*held_out) if held_out is not None and len(held_out[1]) >= _FEWEST else None
    look = "the shuffling: inputs and targets must be put in one order, by one permutation for both; a join of two "
    look += "tables, files that are read in different orders, one that is filtered and the other not"
    if theirs is not None:
        both = (("training", ours, theirs), ("held-out", theirs, ours))
        for name, bad, good in both:
            if good.is_clear and bad.chance > _CHANCE and bad.examples >= good.examples:
                fail(
                    "labels",
                    f"in the {name} data the targets have nothing to do with their inputs: permuted targets are "
                    f"predicted as well in {bad.chance:.0%} of the trials ({bad.examples} examples), where the other "
                    f"data show a relation (correlation {good.score:.2g}). The pairs seem to be torn",
                    look,
                )
    if ours.is_excluded and not are_names:
        fail(
            "labels",
            f"the targets have nothing to do with their inputs: what {ours.columns} columns say about them (each "
            f"alone, neighbours, kernels) is no more than about permuted targets ({ours.examples} examples). The pairs "
            "seem to be torn",
            look,
        )
    if ours.is_clear:
        return "inputs and targets are related"
    return f"no relation of inputs and targets was found in {ours.examples} examples; it may be a hard one"


def relation(inputs: np.ndarray, targets: np.ndarray, seed: int = 0) -> Relation:
    """What the rows of `inputs` say about `targets`: classes (integers), or numbers.

    >>> random = np.random.default_rng(0)
    >>> x = random.normal(size=(200, 3))
    >>> relation(x, np.sin(3 * x[:, 0])).is_clear, relation(x, random.permutation(np.sin(3 * x[:, 0]))).is_clear
    (True, False)
    """
    random = np.random.default_rng(seed)
    # A row that comes again would be predicted from its copy.
    first = random.permutation(np.unique(inputs, axis=0, return_index=True)[1])[:_MOST_COUNTED]
    x, y = _standardized(inputs[first].astype(np.float64)), _without_spikes(_columns(targets[first]))
    permuted = np.stack([y, *(y[random.permutation(len(y))] for _ in range(_PERMUTATIONS))], axis=1)
    single = _of_columns(x, permuted)
    near = permuted[:_MOST] - permuted[:_MOST].mean(0)
    joint = np.max([_correlations(_predicted(each, near), near) for each in _smoothers(x[:_MOST])], axis=0)
    # The first are the targets as they are.
    chances = [float(np.mean(each >= each[0])) for each in (joint, single)]
    return Relation(float(max(joint[0], single[0])), min(chances), len(x), x.shape[1])


def _without_spikes(y: np.ndarray) -> np.ndarray:
    """Numbers of which a few are far away by their ranks, on the scale of the other targets: correlations would be
    those of these few. Equal numbers share a rank; the ranks of two numbers, as of a class or not, say no more."""
    spread = np.std(y, axis=0)
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in y.T], axis=1).astype(np.float64)
    far = np.abs(y - np.median(y, axis=0)).max(0) > _SPIKE * np.maximum(spread, 1e-30)
    far &= ranks.max(0) > 1
    usual = spread[~far & (spread > 0)]
    scale = (np.median(usual) if usual.size else 1.0) / np.maximum(ranks.std(0), 1e-30)
    return np.where(far, (ranks - ranks.mean(0)) * scale, y)


def _predicted(smoother: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (smoother @ y.reshape(len(y), -1)).reshape(y.shape)


def _of_columns(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The largest correlation of a column, or of its square, with a column of the targets: for faint relations."""
    both = _standardized(np.concatenate([x, x**2], axis=1))
    spread = y.std(0)
    found = np.abs(np.einsum("nf,npt->fpt", both, y)) / len(y)
    return np.max(np.divide(found, spread, out=np.zeros_like(found), where=spread > 0), axis=(0, 2))


def _standardized(x: np.ndarray) -> np.ndarray:
    x = x[:, np.std(x, axis=0) > 0]
    return (x - x.mean(0)) / x.std(0)


def _columns(targets: np.ndarray) -> np.ndarray:
    """Classes as one-hot columns, numbers as they are, with a mean of zero."""
    flat = targets.reshape(len(targets), -1)
    if flat.dtype.kind in "iub" and flat.shape[1] == 1 and len(np.unique(flat)) <= _MOST_CLASSES:
        flat = flat == np.unique(flat)[None]
    y = flat.astype(np.float64)
    return y - y.mean(0)


def _smoothers(x: np.ndarray) -> list[np.ndarray]:
    """Matrices that predict each target from the others: zero on the diagonal."""
    squares = np.sum((x[:, None] - x[None]) ** 2, -1) if x.shape[1] <= 16 else _distances(x)
    usual = float(np.median(squares[squares > 0], axis=None)) if (squares > 0).any() else 1.0
    kernels = [
        x @ x.T / max(1, x.shape[1]),
        *(np.exp(-squares / (2 * width**2 * usual)) for width in _WIDTHS),
    ]
    found = []
    for kernel in kernels:
        for ridge in _RIDGES:
            # Leaving one out, in closed form: what is left is (G y)_i / G_ii, for the inverse G of kernel and ridge.
            inverse = np.linalg.inv(kernel + ridge * np.eye(len(x)))
            found.append(np.eye(len(x)) - inverse / np.diag(inverse)[:, None])
    far = squares + np.diag(np.full(len(x), np.inf))
    order = np.argsort(far, axis=1)
    for count in _NEIGHBOURS:
        near = np.zeros_like(squares)
        np.put_along_axis(near, order[:, :count], 1 / count, axis=1)
        found.append(near)
    return found


def _distances(x: np.ndarray) -> np.ndarray:
    squares = (x**2).sum(1)
    return np.maximum(squares[:, None] + squares[None] - 2 * x @ x.T, 0.0)


def _correlations(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Over examples and columns, for each permutation along the middle axis."""
    centred = predicted - predicted.mean(0)
    size = np.sqrt((centred**2).sum((0, 2)) * (y**2).sum((0, 2)))
    return np.divide((centred * y).sum((0, 2)), size, out=np.zeros_like(size), where=size > 1e-12)


def pairs_in(table: Any, targets_of: Callable[[Any], Any]) -> Pairs | None:
    """All columns of a table but the targets, and the targets, if there is one for each row and not too much of it."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(table)]
    try:
        targets = np.asarray(targets_of(table))
    except Exception:  # It may want arrays of jax, or a batch of another size.
        return None
    rows = len(leaves[0]) if leaves else 0
    if targets.shape[:1] != (rows,) or rows < _FEWEST or targets.size > _MOST_TARGETS * rows:
        return None
    flat = targets.reshape(rows, -1).astype(np.float64)
    columns = [each.reshape(rows, -1).astype(np.float64) for each in leaves if each.dtype.kind in "iubf"]
    columns = [each for each in columns if not _is_target(each, flat)]
    inputs = np.concatenate(columns, axis=1) if columns else np.zeros((rows, 0))
    is_usable = 0 < inputs.shape[1] <= _MOST_COLUMNS and np.isfinite(inputs).all() and np.isfinite(flat).all()
    return (inputs, targets) if is_usable and np.std(flat) > 0 and np.std(inputs) > 0 else None


def has_names(table: Any) -> bool:
    """Whether a column of a table holds the numbers of rows of another: integers of which each comes a few times. What
    such a number means is learned, and that of its neighbour is another thing.

    >>> random = np.random.default_rng(0)
    >>> has_names([random.integers(0, 100, 400)]), has_names([random.integers(0, 9, 400), random.normal(size=400)])
    (True, False)
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(table)]
    columns = [leaf for leaf in leaves if leaf.ndim == 1 and leaf.dtype.kind in "iu"]
    return any(len(np.unique(each)) * _ROWS_PER_COLUMN > len(each) for each in columns)


def _is_target(columns: np.ndarray, targets: np.ndarray) -> bool:
    """Whether an array is the targets, up to the names of classes, or shift and scale."""
    if columns.shape != targets.shape:
        return False
    kinds = len(np.unique(targets, axis=0))
    if kinds <= len(targets) // 4:
        pairs = len(np.unique(np.concatenate([columns, targets], axis=1), axis=0))
        return pairs == kinds == len(np.unique(columns, axis=0))
    one, other = columns - columns.mean(0), targets - targets.mean(0)
    return abs((one * other).sum()) > 0.9999 * np.sqrt((one**2).sum() * (other**2).sum())
