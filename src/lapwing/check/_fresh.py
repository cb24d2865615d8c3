"""Data mistakes: the same batch again, an order that repeats, test examples in the training data.

Arrays may come from jax, numpy or torch. Batches are compared by their bytes, examples by those of the largest array of
the batch, which is taken as the input. Integers, one for each example, are taken as labels by default.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._budget import Budget
from ._partition import by_path
from ._report import CheckInputError, Report, fail

# An input with fewer entries may be constant by chance.
_BLANK_ENTRIES = 16
_MANY = 0.05
_LATER_S = 3.0


class _Batch(NamedTuple):
    digest: bytes
    inputs: np.ndarray | None
    """The largest array, one row for each example."""
    labels: np.ndarray | None
    path: str


def fresh_data(
    batches: Iterable[PyTree] | Callable[[int], PyTree],
    *,
    count: int = 16,
    later: int = 0,
    held_out: PyTree | None = None,
    labels: Callable[[Any], Any] | None = None,
    batch_axis: int = 0,
) -> Report:
    """Batches must differ, must not repeat in the same order, and must contain no test examples.

    **Arguments**

    - `batches`: an iterable, or a function of the step (0, 1, 2, …); the first `count` are compared.
    - `later`: the number of batches after these that are compared with the first two, to find an order that repeats
      after a long epoch; fewer if they take more than a few seconds.
    - `held_out`: a batch of test data.
    - `labels(batch)`: returns the labels of a batch.
    - `batch_axis`: the axis of the examples in every array.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).normal(size=(200, 50, 28))
    >>> print(fresh_data(images))
    fresh_data: 16 batches, all different
    >>> fresh_data(lambda step: images[0])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: batch 1 is the same as batch 0, and 1 of 16 batches are different. Look at ...
    """
    made = (batches(step) for step in itertools.count()) if callable(batches) else iter(batches)
    seen = [_summary(batch, labels, batch_axis) for batch in itertools.islice(made, count)]
    if len(seen) < 2:
        raise CheckInputError(
            f"expected two batches or more, found {len(seen)}; give those of a training loop"
        )
    _check_repeats([batch.digest for batch in seen])
    _check_examples(seen)
    _check_labels([batch.labels for batch in seen if batch.labels is not None])
    read = len(seen) + _check_later([batch.digest for batch in seen], made, labels, batch_axis, later)
    message, facts = f"{len(seen)} batches, all different", {"batches": read}
    if held_out is not None:
        shared, again = _check_held_out(seen, _summary(held_out, labels, batch_axis))
        message += f"; {shared:.0%} of the held-out examples are training examples"
        if shared:
            message += f", as many as training examples repeat ({again:.0%}): there are few different ones"
        facts |= {"shared": shared}
    return Report("fresh_data", message, facts)


def _summary(batch: Any, labels: Callable[[Any], Any] | None, axis: int) -> _Batch:
    leaves = [(path, as_numpy(leaf)) for path, leaf in by_path(batch, "batch").items()]
    if not leaves:
        raise CheckInputError("the batches contain no arrays; give batches with the data in them")
    digest = digest_of(batch)
    rows = [(path, np.moveaxis(array, axis, 0)) for path, array in leaves if array.ndim > axis]
    if not rows:
        return _Batch(digest, None, None, "")
    # A mask is as large as the tokens that it masks, and has shorter numbers.
    path, inputs = max(rows, key=lambda pair: (pair[1].size, pair[1].dtype.itemsize))
    counts = {each.removeprefix("batch"): len(array) for each, array in rows}
    given = as_numpy(labels(batch)) if labels else None
    if given is not None and len(given) != len(inputs):
        fail(
            "fresh_data",
            f"there are {len(inputs)} examples in {path} and {len(given)} labels ({counts})",
            "how inputs and labels are split into batches",
        )
    if given is None:
        whole = [
            array
            for _, array in rows
            if array.ndim == 1 and array.dtype.kind in "iu" and len(array) == len(inputs)
        ]
        given = whole[0] if whole and whole[0] is not inputs else None
    return _Batch(digest, inputs.reshape(len(inputs), -1), given, path)


def inputs_of(batch: Any) -> np.ndarray:
    """The inputs of a batch, one row for each example: the largest array in it."""
    inputs = _summary(batch, None, 0).inputs
    if inputs is None:
        raise CheckInputError("expected batches with examples along their first axis, found none")
    return inputs


def examples_of(batch: Any, labels: Callable[[Any], Any] | None = None) -> list[tuple[bytes, Any]]:
    """The inputs of each example as bytes, with its label, if the batch has one number for each."""
    seen = _summary(batch, labels, 0)
    if seen.inputs is None or seen.labels is None or np.ndim(seen.labels) != 1 or seen.inputs.shape[1] < 4:
        return []
    # An input may be several arrays: tokens and their mask, two sequences.
    arrays = [as_numpy(leaf) for leaf in by_path(batch, "batch").values()]
    parts = [each for each in arrays if each.ndim > 1 and len(each) == len(seen.labels)]
    rows = [
        b"".join(np.ascontiguousarray(each[row]).tobytes() for each in parts)
        for row in range(len(seen.labels))
    ]
    return list(zip(rows, seen.labels.tolist(), strict=True))


def digest_of(batch: Any) -> bytes:
    """A fingerprint of all arrays of a batch."""
    leaves = by_path(batch, "batch").values()
    return hashlib.sha256(b"".join(_bytes(as_numpy(leaf)) for leaf in leaves)).digest()


def as_numpy(leaf: Any) -> np.ndarray:
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _bytes(array: np.ndarray) -> bytes:
    return repr((array.shape, str(array.dtype))).encode() + np.ascontiguousarray(array).tobytes()


def _check_repeats(digests: Sequence[bytes]) -> None:
    different = f"{len(set(digests))} of {len(digests)} batches are different"
    for step, (before, now) in enumerate(itertools.pairwise(digests), start=1):
        if before == now:
            fail(
                "fresh_data",
                f"batch {step} is the same as batch {step - 1}, and {different}",
                "the index or the key of the batch, which should advance at every step",
                [f"batch {step}"],
            )
    for period in range(2, len(digests) - 1):
        if digests[period:] == digests[:-period]:
            fail(
                "fresh_data",
                f"the data repeat every {period} batches in the same order, and {different}",
                "the shuffling: draw a new order for each epoch",
                [f"batch {period}"],
            )


def _check_later(
    first: list[bytes],
    made: Iterator[Any],
    labels: Callable[[Any], Any] | None,
    axis: int,
    later: int,
) -> int:
    """Whether the first two batches come again, one after the other, among `later` more; the number that were read."""
    budget, before, read = Budget(_LATER_S), first[-1], 0
    for batch in itertools.islice(made, later):
        read += 1
        now = _summary(batch, labels, axis).digest
        if (before, now) == (first[0], first[1]):
            period = len(first) + read - 2
            fail(
                "fresh_data",
                f"the data repeat every {period} batches in the same order: batches {period} and {period + 1} are "
                "batches 0 and 1 again",
                "the shuffling: an order that is drawn with the same seed in each epoch is the same order; draw it "
                "from a key that changes with the epoch",
                [f"batch {period}"],
            )
        before = now
        if budget.left() == 0:
            break
    return read


def _check_examples(seen: Sequence[_Batch]) -> None:
    for step, batch in enumerate(seen):
        inputs = batch.inputs
        if inputs is None or len(inputs) < 2:
            continue
        if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
            example, entry = (int(i) for i in np.argwhere(~np.isfinite(inputs))[0])
            fail(
                "fresh_data",
                f"{batch.path} contains {inputs[example, entry]} in batch {step}, example {example}",
                "how the data are read and scaled: a division by a standard deviation of 0, a missing value",
                [f"batch {step}, example {example}"],
            )
        blank = np.flatnonzero((inputs == inputs[:, :1]).all(axis=1))
        is_image = inputs.dtype.kind == "f" or inputs.dtype == np.uint8  # tokens may be all padding
        if is_image and inputs.shape[1] >= _BLANK_ENTRIES and len(blank) >= _MANY * len(inputs):
            fail(
                "fresh_data",
                f"{len(blank)} of {len(inputs)} examples of {batch.path} in batch {step} are blank (one value "
                f"everywhere), the first is example {blank[0]}",
                "how the data are read: an offset into a file, a buffer that was never filled, a cast that clips",
                [f"batch {step}, example {i}" for i in blank],
            )
        if (inputs == inputs[:1]).all():
            fail(
                "fresh_data",
                f"all {len(inputs)} examples of {batch.path} in batch {step} are the same",
                "the index of the example inside the batch, which should advance",
                [f"batch {step}"],
            )


def _check_labels(labels: Sequence[np.ndarray]) -> None:
    constant = [np.ravel(each)[0] for each in labels if each.size >= 8 and (each == np.ravel(each)[0]).all()]
    if labels and len(constant) == len(labels) and len(set(constant)) == 1:
        fail(
            "fresh_data",
            f"the labels are {constant[0]} in all {len(labels)} batches",
            "where the labels come from: an offset into their file, the wrong column, or data that are sorted by label "
            "and not shuffled",
        )
    if len(set(constant)) > 1:
        other = next(each for each in constant if each != constant[0])
        fail(
            "fresh_data",
            f"{len(constant)} of {len(labels)} batches have a single label, {constant[0]} then {other}: the "
            "labels come in constant blocks",
            "the shuffling: the data are sorted by label",
        )
    every = np.concatenate([np.ravel(each) for each in labels]) if labels else np.zeros(0)
    if every.size >= 32 and len(np.unique(every)) > 1 and (np.diff(every) >= 0).all():
        fail(
            "fresh_data",
            f"the labels of the first {len(labels)} batches never decrease, from {every[0]} to {every[-1]}: the data "
            "are sorted by label",
            "the shuffling: draw a new order of all examples for each epoch",
        )


def _check_held_out(seen: Sequence[_Batch], held_out: _Batch) -> tuple[float, float]:
    """The fraction of test examples among the training examples, and of training examples that repeat."""
    trained = [row.tobytes() for batch in seen if batch.inputs is not None for row in batch.inputs]
    tested = [row.tobytes() for row in held_out.inputs] if held_out.inputs is not None else []
    if not trained or not tested:
        raise CheckInputError("expected examples along batch_axis in the batches and in held_out, found none")
    known = set(trained)
    shared = [place for place, row in enumerate(tested) if row in known]
    again = 1 - len(known) / len(trained)
    # A problem with few different examples repeats some by chance, in training as in the test.
    if len(shared) / len(tested) > 4 * again:
        fail(
            "fresh_data",
            f"{len(shared)} of {len(tested)} held-out examples are also in the first {len(seen)} training batches, the "
            f"first is example {shared[0]}",
            "how the data are split, and duplicates in the data themselves",
            [f"held-out example {place}" for place in shared],
        )
    return len(shared) / len(tested), again
