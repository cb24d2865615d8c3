"""What the buffer holds, of which example, and which examples it samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.attacks import AttackError, ReplayBuffer

KEY = jax.random.key(0)
STORE, RECALL = jax.jit(ReplayBuffer.store), jax.jit(ReplayBuffer.recall)


def empty(size: int) -> ReplayBuffer:
    return ReplayBuffer.empty(size, (2,))


def stored(buffer, examples, loss=None, view=0):
    numbers = jnp.asarray(examples)
    deltas = jnp.stack([jnp.full(2, 0.01 * n) for n in examples])
    losses = jnp.ones(len(examples)) if loss is None else jnp.asarray(loss, jnp.float32)
    return buffer.store(numbers, deltas, losses, view)


def test_nothing_is_known_at_first():
    assert not empty(5).recall(jnp.arange(5))[1].any()


def test_what_was_stored_is_recalled():
    deltas, known = stored(empty(20), [3, 7]).recall(jnp.array([7, 3, 5]))
    assert known.tolist() == [True, True, False]
    np.testing.assert_allclose(deltas[:2, 0], [0.07, 0.03], rtol=1e-3)


@settings(max_examples=50, deadline=None)
@given(
    size=st.sampled_from([1, 2, 5]),
    visits=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3, unique=True), min_size=1, max_size=4),
)
def test_a_bounded_memory_never_takes_one_example_for_another(size: int, visits: list[list[int]]):
    buffer = empty(size)
    for examples in visits:
        numbers = np.array(examples, np.int32)
        buffer = STORE(buffer, numbers, np.full((3, 2), 0.01) * numbers[:, None], numbers.astype(np.float32))
    deltas, known = jax.device_get(RECALL(buffer, np.arange(10)))
    np.testing.assert_allclose(deltas[:, 0][known], 0.01 * np.flatnonzero(known), rtol=1e-3)
    owners = np.asarray(buffer.owner)
    np.testing.assert_array_equal(np.asarray(buffer.loss)[owners >= 0], owners[owners >= 0])
    assert {n % size for n in visits[-1]} <= {int(n) % size for n in owners if n >= 0}
    last = {row: max(n for n in visits[-1] if n % size == row) for row in {n % size for n in visits[-1]}}
    assert all(owners[row] == n for row, n in last.items())


def test_another_view_of_the_image_forgets():
    buffer = stored(empty(5), [1, 2], view=jnp.array([4, 5]))
    assert buffer.recall(jnp.array([1, 2]), jnp.array([4, 4]))[1].tolist() == [True, False]


def test_ages_count_the_stores_since():
    buffer = stored(stored(stored(empty(4), [0]), [1]), [2])
    assert buffer.age.tolist() == [2, 1, 0, 4]


def test_the_oldest_come_first_and_those_never_seen_before_them():
    buffer = stored(stored(stored(empty(4), [0]), [1]), [2])
    assert buffer.sample(KEY, 4, "oldest").tolist() == [3, 0, 1, 2]


def test_the_hardest_are_drawn_by_their_loss():
    buffer = stored(empty(3), [0, 1, 2], loss=[1.0, 3.0, 0.0])
    keys = jax.random.split(KEY, 2000)
    drawn = jax.jit(jax.vmap(lambda key: buffer.sample(key, 1, "hardest")[0]))(keys)
    assert abs(float(jnp.mean(drawn == 1)) - 0.75) < 0.03
    assert not (drawn == 2).any()


def test_a_uniform_draw_takes_all_alike_and_none_twice():
    buffer = stored(empty(5), [0, 1])
    drawn = jax.jit(jax.vmap(lambda key: buffer.sample(key, 2, "uniform")))(jax.random.split(KEY, 2000))
    assert (drawn[:, 0] != drawn[:, 1]).all()
    np.testing.assert_allclose(np.bincount(np.asarray(drawn).ravel()) / 4000, 0.2, atol=0.03)


def test_what_cannot_be_is_said():
    with pytest.raises(AttackError, match="at least one row, found 0"):
        empty(0)
    with pytest.raises(AttackError, match="at most 3 examples, the rows of the buffer, found 4"):
        empty(3).sample(KEY, 4)
