"""What the memory remembers, of whom, and whom it proposes next."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.attacks import AttackError, empty, recall, sample, store

KEY = jax.random.key(0)


def stored(memory, examples, loss=None, view=0):
    numbers = jnp.asarray(examples)
    deltas = jnp.stack([jnp.full(2, 0.01 * n) for n in examples])
    losses = jnp.ones(len(examples)) if loss is None else jnp.asarray(loss, jnp.float32)
    return store(memory, numbers, deltas, losses, view)


def test_nothing_is_known_at_first():
    assert not recall(empty(5, (2,)), jnp.arange(5))[1].any()


def test_what_was_stored_is_recalled():
    deltas, known = recall(stored(empty(20, (2,)), [3, 7]), jnp.array([7, 3, 5]))
    assert known.tolist() == [True, True, False]
    np.testing.assert_allclose(deltas[:2, 0], [0.07, 0.03], rtol=1e-3)


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 6),
    visits=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True), min_size=1, max_size=4),
)
def test_a_bounded_memory_never_takes_one_example_for_another(size: int, visits: list[list[int]]):
    memory = empty(size, (2,))
    for examples in visits:
        memory = stored(memory, examples, loss=[float(n) for n in examples])
    deltas, known = recall(memory, jnp.arange(10))
    np.testing.assert_allclose(deltas[:, 0][known], 0.01 * np.flatnonzero(known), rtol=1e-3)
    owners = np.asarray(memory.owner)
    np.testing.assert_array_equal(np.asarray(memory.loss)[owners >= 0], owners[owners >= 0])
    assert {n % size for n in visits[-1]} <= {int(n) % size for n in owners if n >= 0}
    last = {row: max(n for n in visits[-1] if n % size == row) for row in {n % size for n in visits[-1]}}
    assert all(owners[row] == n for row, n in last.items())


def test_another_view_of_the_image_forgets():
    memory = stored(empty(5, (2,)), [1, 2], view=jnp.array([4, 5]))
    assert recall(memory, jnp.array([1, 2]), jnp.array([4, 4]))[1].tolist() == [True, False]


def test_ages_count_the_stores_since():
    memory = stored(stored(stored(empty(4, (2,)), [0]), [1]), [2])
    assert memory.age.tolist() == [2, 1, 0, 4]


def test_the_oldest_come_first_and_those_never_seen_before_them():
    memory = stored(stored(stored(empty(4, (2,)), [0]), [1]), [2])
    assert sample(memory, KEY, 4, "oldest").tolist() == [3, 0, 1, 2]


def test_the_hardest_are_drawn_by_their_loss():
    memory = stored(empty(3, (2,)), [0, 1, 2], loss=[1.0, 3.0, 0.0])
    keys = jax.random.split(KEY, 2000)
    drawn = jax.vmap(lambda key: sample(memory, key, 1, "hardest")[0])(keys)
    assert abs(float(jnp.mean(drawn == 1)) - 0.75) < 0.03
    assert not (drawn == 2).any()


def test_a_uniform_draw_takes_all_alike_and_none_twice():
    memory = stored(empty(5, (2,)), [0, 1])
    drawn = jax.vmap(lambda key: sample(memory, key, 2, "uniform"))(jax.random.split(KEY, 2000))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    np.testing.assert_allclose(np.bincount(np.asarray(drawn).ravel()) / 4000, 0.2, atol=0.03)


def test_what_cannot_be_is_said():
    with pytest.raises(AttackError, match="at least one row, found 0"):
        empty(0, (2,))
    with pytest.raises(AttackError, match="at most 3 examples, the rows of the memory, found 4"):
        sample(empty(3, (2,)), KEY, 4)
