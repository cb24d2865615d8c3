"""What a model should not know: the token it has to predict, the examples it is tested on, the target itself.

A next-token model whose output sees the next token is found on the program of its loss, without being told which axis
is time. Test examples among the training examples are found exactly and nearly: the nearest training example is much
nearer than training examples are to each other.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ._copies_of_rows import copies, is_measured
from ._fresh import examples_of, inputs_of
from ._jaxprs import place
from ._labels import TokenView
from ._program import read
from ._report import CheckInputError, Report, fail

_COMPARED = 1024
_NEAR = 0.02
_SHARE = 0.02


def leakage(loss: Callable[..., Any], params: PyTree, batch: PyTree) -> Report:
    """The outputs of a next-token model in `loss(params, batch)` must not see the token that they predict.

    Through attention without a mask, a norm over time or a memory that is written before it is read.

    >>> import jax, jax.numpy as jnp
    >>> def loss(table, tokens):
    ...     x = table[tokens[:, :-1]]
    ...     odds = jax.nn.log_softmax(x - x.mean(axis=1, keepdims=True))
    ...     return -jnp.mean(jnp.take_along_axis(odds, tokens[:, 1:, None], -1))
    >>> tokens = jax.random.randint(jax.random.key(0), (4, 12), 0, 9)
    >>> leakage(loss, jax.random.normal(jax.random.key(1), (9, 9)), tokens)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the output at time t changes with the token at time t + 3, and the label ...
    """
    return check_next_token(TokenView(read(loss, params=params, batch=batch), params, batch))


def check_next_token(view: TokenView) -> Report:
    found = view.ahead()
    if found is None or found[0] < 1:
        raise CheckInputError("the labels are not tokens ahead of those that the model sees")
    ahead, var, tokens = found
    reach = view.reach(var, tokens)
    if reach is not None and reach >= ahead:
        fail(
            "leakage",
            f"the output at time t changes with the token at time t + {reach}, and the label at time t is the token at "
            f"time t + {ahead} ({place(view.choice.eqn)}): the model sees what it has to predict",
            "the causal mask (its direction, and whether it is used at all), norms and means over time, and a memory "
            "or cache that is written before it is read",
            [place(view.choice.eqn)],
        )
    return Report("leakage", f"no output sees its label, {ahead} ahead", {"ahead": ahead})


def shared_examples(
    training: Sequence[PyTree], held_out: Sequence[PyTree], labels: Callable[[Any], Any] | None = None
) -> Report:
    """No held-out example may be a training example, or nearly one.

    **Arguments**

    - `training`, `held_out`: some batches of each.
    - `labels(batch)`: the labels of a batch, which are not compared.

    >>> x = np.random.default_rng(0).normal(size=(2, 40, 8))
    >>> print(shared_examples(x[:1], x[1:]))
    leakage: none of 40 held-out examples is among 40 training examples, or close to one
    >>> shared_examples(x[:1], x[:1] + 1e-4)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: 40 of 40 held-out examples are training examples, or nearly: held-out ...
    """
    if not len(training) or not len(held_out):
        empty = "held_out" if len(training) else "training"
        raise CheckInputError(f"expected batches in training and in held_out, found none in {empty}")
    rows, tests = (
        np.concatenate([inputs_of(batch) for batch in batches]) for batches in (training, held_out)
    )
    if rows.ndim != 2 or rows.shape[1:] != tests.shape[1:]:
        raise CheckInputError(f"expected examples of one shape, found {rows.shape[1:]} and {tests.shape[1:]}")
    measured = is_measured(rows)
    _check_copies(rows, tests, measured)
    # Rows that were repeated on purpose, as for a rare class, say nothing about how far examples are apart.
    once = one_epoch(rows)
    places = _some(np.unique(once, axis=0, return_index=True)[1] if measured else np.arange(len(once)))
    tested_places = _some(np.arange(len(tests)))
    trained, tested, kind = rows[places], tests[tested_places], rows.dtype.kind
    across, which = _nearest(tested, trained, kind)
    within = _nearest(trained, trained, kind, itself=True)[0]
    # As far apart as training examples usually are; a problem with few different examples repeats some by chance.
    usual = float(np.median(within))
    near = across <= _NEAR * usual
    chance = float(np.mean(within <= _NEAR * usual))
    if usual > 0 and near.mean() > _SHARE and near.mean() > 4 * chance:
        first = int(np.flatnonzero(near)[0])
        fail(
            "leakage",
            f"{int(near.sum())} of {len(tested)} held-out examples are training examples, or nearly: held-out example "
            f"{tested_places[first]} is {across[first]:.2g} from training example {places[which[first]]}, where "
            f"training examples are {usual:.2g} from each other",
            "how the data are split: duplicates, crops or windows of one source in both parts; split by source first",
            [f"held-out example {int(place)}" for place in tested_places[near]],
        )
    return Report(
        "leakage",
        f"none of {len(tested)} held-out examples is among {len(trained)} training examples, or close to one",
        {"near": float(near.mean())},
    )


def _some(places: np.ndarray) -> np.ndarray:
    """Not more of them than can be compared, in order."""
    if len(places) > _COMPARED:
        places = np.random.default_rng(0).choice(places, _COMPARED, replace=False)
    return np.sort(places)


def _check_copies(rows: np.ndarray, tests: np.ndarray, measured: bool) -> None:
    """Raises if held-out rows are training rows exactly, and not by chance."""
    source = copies(tests, rows)
    shared = np.flatnonzero(source >= 0)
    if len(shared) <= _SHARE * len(tests):
        return
    once = one_epoch(rows)
    chance = 1 - len(np.unique(once, axis=0)) / len(once)
    if measured or len(shared) > 4 * chance * len(tests):
        first = int(shared[0])
        fail(
            "leakage",
            f"{len(shared)} of {len(tests)} held-out examples are training examples: held-out example {first} is "
            f"training example {source[first]}, and validation contains what was trained on",
            "how the data are split: duplicates (rows that are repeated before the split, as to balance classes), "
            "crops or windows of one source in both parts; split by source first",
            [f"held-out example {int(place)}" for place in shared],
        )


def one_epoch(rows: np.ndarray) -> np.ndarray:
    """The rows up to the first that comes again, if that is the beginning of another epoch.

    Draws from n different examples repeat one after about 1.25 √n of them, an epoch after all n.

    >>> rows = np.arange(200)[:, None]
    >>> len(one_epoch(np.concatenate([rows, rows]))), len(one_epoch(rows % 20))
    (200, 200)
    """
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    distinct = len(first)
    until = int(np.argmax(first != np.arange(distinct))) if (first != np.arange(distinct)).any() else distinct
    return rows[:until] if until > 6 * distinct**0.5 else rows


def _nearest(
    one: np.ndarray, other: np.ndarray, kind: str, itself: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each row to the nearest of the others: Euclidean, or of integers the share that differs."""
    if kind in "iub" and one.dtype != np.uint8:
        far = np.stack([(row != other).mean(axis=1) for row in one])
    else:
        a, b = one.astype(np.float64), other.astype(np.float64)
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T
        far = np.sqrt(np.maximum(squares, 0.0))
    if itself:
        np.fill_diagonal(far, np.inf)
    return far.min(axis=1), far.argmin(axis=1)


def check_target_column(batch: PyTree, labels: Callable[[Any], Any] | None = None) -> None:
    """No column of the inputs may be the target itself, or determine it one by one."""
    inputs = inputs_of(batch)
    targets = np.asarray([label for _, label in examples_of(batch, labels)])
    if targets.ndim != 1 or targets.dtype.kind not in "iuf" or len(targets) < 16 or inputs.shape[1] < 4:
        return
    if np.std(targets) == 0 or len(np.unique(targets)) < 3:
        return
    columns = inputs.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = columns - columns.mean(0)
        to = targets - targets.mean()
        correlation = np.abs((centred * to[:, None]).sum(0) / np.sqrt((centred**2).sum(0) * (to**2).sum()))
    equal = np.flatnonzero(np.nan_to_num(correlation) > 0.9999)
    if len(equal) == 1:
        fail(
            "leakage",
            f"column {equal[0]} of the inputs is the target, up to its scale (correlation {correlation[equal[0]]:.6g} "
            f"over {len(targets)} examples)",
            "the inputs: the target column, or a statistic of the target, among the features",
            [f"column {equal[0]}"],
        )
    same = [place for place, column in enumerate(columns.T) if _is_renamed(column, targets)]
    if len(same) == 1:
        fail(
            "leakage",
            f"column {same[0]} of the inputs determines the target one by one, in all {len(targets)} examples: it is "
            "the target under other names, or on another scale",
            "the inputs: the target column, or a statistic of the target, among the features",
            [f"column {same[0]}"],
        )


def _is_renamed(column: np.ndarray, targets: np.ndarray) -> bool:
    """Whether a column and the targets are functions of each other: classes with other names, or numbers that come in
    the same order.

    >>> numbers = np.random.default_rng(0).normal(size=40)
    >>> _is_renamed(np.exp(numbers), numbers), _is_renamed(np.sin(9 * numbers), numbers)
    (True, False)
    """
    kinds = len(np.unique(column))
    if kinds != len(np.unique(targets)) or kinds < 3:
        return False
    if kinds == len(targets):
        order, by_target = np.argsort(column), np.argsort(targets)
        return bool((order == by_target).all() or (order == by_target[::-1]).all())
    pairs = len(np.unique(np.stack([column, targets.astype(np.float64)]), axis=1).T)
    return pairs == kinds and len(targets) >= 4 * kinds
