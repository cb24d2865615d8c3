"""Torn pairs: a table whose columns are shuffled apart, classes, held-out data; and clean twins."""

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, run_all
from lapwing.check._relation import _without_spikes, check_pairs, relation
from lapwing.task import Arrays, Task
from tests.slow import some

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(320, 5))
TARGETS = {
    "numbers": np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2],
    "classes": (X[:, 0] * X[:, 1] > 0) + (X[:, 2] > 1).astype(int),
    "two": np.stack([X[:, 3] ** 2, np.abs(X[:, 1])], 1),
}


@pytest.mark.parametrize("kind", some(TARGETS, 0))
def test_pairs_torn_before_the_training_are_found(kind: str):
    y = TARGETS[kind]
    assert check_pairs((X, y)) == "inputs and targets are related"
    with pytest.raises(CheckError, match=r"the targets have nothing to do .* 5 columns .* seem to be torn"):
        check_pairs((X, RANDOM.permutation(y)))


def test_rows_repeated_after_they_were_torn_say_nothing():
    y = RANDOM.permutation(TARGETS["numbers"])
    with pytest.raises(CheckError, match="320 examples"):
        check_pairs((np.repeat(X, 2, axis=0), np.repeat(y, 2)))


@pytest.mark.slow
def test_many_columns_need_held_out_data_to_be_sure():
    kinds = RANDOM.integers(0, 3, 400)
    images = RANDOM.normal(size=(3, 64))[kinds] + 2 * RANDOM.normal(size=(400, 64))
    torn = np.roll(kinds, 7)
    assert "may be a hard one" in check_pairs((images, torn))
    with pytest.raises(
        CheckError, match=r"in the training data the targets have nothing to do .* a relation"
    ):
        check_pairs((images[:260], torn[:260]), (images[260:], kinds[260:]))
    check_pairs((images[:260], kinds[:260]), (images[260:], kinds[260:]))


@pytest.mark.parametrize("is_torn", some([False, True], 1))
def test_the_table_of_a_task_is_examined(is_torn: bool):
    y = TARGETS["numbers"]
    table = {f"x{n}": column.astype(np.float32) for n, column in enumerate(X.T)}
    table |= {"y": np.roll(y, 1 if is_torn else 0).astype(np.float32)}
    task = Task(
        init=lambda key: jnp.zeros(5),
        data=Arrays(table, batch_size=32),
        loss=lambda w, b: (jnp.mean((sum(b[f"x{n}"] * w[n] for n in range(5)) - b["y"]) ** 2), {}),
        targets=lambda b: b["y"],
    )
    (outcome,) = run_all(task, only=["labels"])
    assert outcome.result == ("failed" if is_torn else "passed"), outcome.detail
    assert ("torn" if is_torn else "inputs and targets are related") in outcome.detail


def test_a_few_targets_that_are_far_away_hide_no_relation():
    random = np.random.default_rng(3)
    x = random.normal(size=(512, 5))
    spikes = np.where(random.random(512) < 0.01, 200 * random.normal(size=512), 0.0)
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + spikes
    assert relation(x, y).is_clear
    assert not relation(x, random.permutation(y)).is_clear


@pytest.mark.parametrize("rare", some([2, 3, 4], 1))
def test_a_rare_class_hides_no_relation_of_the_others(rare: int):
    random = np.random.default_rng(rare)
    x = random.normal(size=(400, 3))
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    y[random.permutation(400)[:rare]] = 2
    assert check_pairs((x, y)) == "inputs and targets are related"
    with pytest.raises(CheckError, match="the targets have nothing to do with their inputs"):
        check_pairs((x, np.roll(y, 7)))


def test_ranks_share_ties_and_have_the_scale_of_the_other_targets():
    random = np.random.default_rng(0)
    spiky = np.repeat(random.permutation(100), 4).astype(np.float64)
    spiky[spiky == 99] = 1e6
    y = np.column_stack([spiky[:400], random.normal(size=400), np.arange(400) == 7])
    ranked = _without_spikes(y)
    assert np.array_equal(ranked[:, 1:], y[:, 1:])
    assert len(np.unique(ranked[:, 0])) == 100
    assert ranked[:, 0].std() == pytest.approx(np.median(y[:, 1:].std(0)))
