"""Training rows among the validation rows: repeated before the split, in images, in tables; and clean twins."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, run_all, shared_examples
from lapwing.task import Arrays, Task

RANDOM = np.random.default_rng(0)


def table(kind: str) -> np.ndarray:
    """Rows of which none is like another: numbers, rounded numbers, images of bytes."""
    if kind == "images":
        return RANDOM.integers(0, 256, (160, 64)).astype(np.uint8)
    rows = RANDOM.normal(size=(160, 6))
    return (np.round(rows, 1) if kind == "rounded" else rows).astype(np.float32)


def repeated(places: np.ndarray) -> np.ndarray:
    return np.concatenate([places, np.repeat(places[places % 5 == 0], 4)])


@pytest.mark.parametrize("kind", ["numbers", "rounded", "images"])
def test_rows_repeated_before_the_split_are_found(kind: str):
    rows = table(kind)
    places = RANDOM.permutation(repeated(np.arange(160)))
    with pytest.raises(CheckError, match=r"held-out examples are training examples: .* split"):
        shared_examples([rows[places[80:]]], [rows[places[:80]]])
    places = RANDOM.permutation(160)
    shared_examples([rows[repeated(places[40:])]], [rows[places[:40]]])


def test_few_different_examples_are_no_fault():
    angles = np.linspace(0, 6, 80)[RANDOM.integers(0, 80, 1200)]  # numbers that come again, all of them
    rows = np.stack([np.sin(n * angles) for n in range(1, 9)], 1)
    shared_examples([rows[:1000]], [rows[1000:]])
    words = RANDOM.integers(0, 3, (400, 5))
    shared_examples([words[:300]], [words[300:]])


def test_all_rows_of_arrays_are_compared():
    rows = RANDOM.normal(size=(4000, 5)).astype(np.float32)
    outcome = {}
    for name, held_out in {
        "apart": rows[3800:],
        "copied": np.concatenate([rows[3800:], rows[3000:3010]]),
    }.items():
        task = Task(
            init=lambda key: jnp.zeros(5),
            data=Arrays(rows[:3800], batch_size=16),
            validation=Arrays(held_out, batch_size=10),
            loss=lambda w, x: (jnp.mean((x @ w - 1) ** 2), {}),
        )
        (outcome[name],) = run_all(task, only=["leakage"])
    assert outcome["apart"].result == "passed"
    assert outcome["copied"].result == "failed"
    assert (
        "10 of 210 held-out examples are training examples: held-out example 200 is training example 3000"
        in (outcome["copied"].detail)
    )


def test_near_copies_are_found_among_repeated_rows():
    rows = RANDOM.normal(size=(200, 6))
    train = np.repeat(rows[:120], 1 + 2 * (np.arange(120) % 4 == 0), axis=0)
    near: Any = np.concatenate([rows[120:], rows[:8] + 1e-4])
    shared_examples([train], [rows[120:]])
    with pytest.raises(CheckError, match="8 of 88 held-out examples are training examples, or nearly"):
        shared_examples([train], [near])
