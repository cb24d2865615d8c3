"""Positions that generalise: what an attention can tell, on any length, and what is drawn in training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import Looped, LoopedError, LoopedSize
from lapwing.models._positions import Abacus, places_of, spread
from tests.slow import some

SIGN = 5


def looped(positions, **options) -> Looped:
    size = LoopedSize(width=8, heads=2, mixer="attention", positions=positions, **options)
    return Looped(size, (SIGN + 1,), 3, (9,), jax.random.key(0), separators=(SIGN,))


LINE = jnp.array([[1, 2, 3, SIGN, 1, 4, SIGN, 2, 2]])[..., None]


def test_places_are_counted_from_the_signs():
    assert places_of(LINE, [SIGN]).tolist() == [[1, 2, 3, 0, 1, 2, 0, 1, 2]]
    assert places_of(LINE, []).tolist() == [[*range(1, 10)]]


@pytest.mark.slow
def test_by_places_digits_of_the_same_place_are_the_same_distance_apart():
    """Turned by their places, the first and the second number have the same angles."""
    for positions in ("places", "rotary"):
        cos, sin = looped(positions).recall(LINE)[2]
        angles = jnp.concatenate([cos, sin], axis=-1).reshape(9, -1)
        np.testing.assert_equal(np.allclose(angles[:2], angles[4:6]), positions == "places")


def test_by_places_what_is_far_apart_counts_less():
    far = looped("places").recall(LINE).far
    np.testing.assert_allclose(far[0, :, 0, :4], np.outer([2, 1 / 4], [0, 1, 2, 1]))
    np.testing.assert_allclose(far[0, :, 0, 4:6], far[0, :, 0, :2])
    assert looped("rotary").recall(LINE).far is None


@pytest.mark.parametrize("positions", some(["places", "abacus"], 1))
def test_the_order_of_numbers_does_not_count(positions):
    model = looped(positions)
    order = jnp.array([4, 5, 3, 0, 1, 2, 6, 7, 8])
    moved = LINE[:, order]
    np.testing.assert_allclose(model(moved, 3), model(LINE, 3)[:, order], atol=1e-5)
    plain = looped("rotary")
    assert not np.allclose(plain(moved, 3), plain(LINE, 3)[:, order], atol=1e-3)


def test_an_offset_is_drawn_in_training_and_reaches_all_places():
    abacus = Abacus(20, 4, jax.random.key(0))
    places = places_of(LINE, [SIGN])
    plain = abacus(places, None)
    np.testing.assert_array_equal(plain, abacus.table[places])
    first = set()
    for drawn in range(60):
        (found,) = np.asarray(abacus(places, jnp.int32(drawn)))
        np.testing.assert_array_equal(found[3], abacus.table[0])  # A sign has no place.
        at = int(np.argmin(np.abs(abacus.table - found[0]).sum(axis=1)))
        np.testing.assert_array_equal(found[:3], abacus.table[at : at + 3])
        np.testing.assert_array_equal(found[4:6], abacus.table[at : at + 2])
        first.add(at)
    assert (min(first), max(first)) == (1, 18)  # The longest number has three places.


def test_drawn_positions_rise_within_the_reach():
    every = {tuple(spread(5, 30, jnp.int32(drawn)).tolist()) for drawn in range(20)}
    assert len(every) > 15
    for positions in every:
        assert list(positions) == sorted(set(positions))
        assert positions[0] >= 0
        assert positions[-1] < 30
    np.testing.assert_allclose(spread(5, 30, None), [3, 9, 15, 21, 27])
    np.testing.assert_allclose(spread(40, 30, None), np.arange(40) + 0.5)  # Longer than that of training.


@pytest.mark.parametrize("positions", ["random", "abacus"])
def test_what_is_drawn_matters_in_training_alone(positions):
    model = looped(positions, reach=40)
    first, second = (model.recall(LINE, jnp.int32(drawn)) for drawn in (1, 2))
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    assert any(not np.allclose(*pair) for pair in leaves)
    assert "random" not in str(jax.make_jaxpr(lambda inputs: model(inputs, 2))(LINE))


@pytest.mark.parametrize("positions", some(["rotary", "random", "abacus", "places"], 2))
def test_longer_lines_than_that_of_the_training(positions):
    assert looped(positions, reach=12)(jnp.ones((2, 50, 1), int), 2).shape == (2, 50, 3)


def test_positions_that_do_not_fit():
    with pytest.raises(
        LoopedError, match="rotary for a mixer without attention, such as convolution, but is abacus"
    ):
        LoopedSize(mixer="convolution", positions="abacus")
    size = LoopedSize(width=8, heads=2, mixer="attention", positions="places")
    with pytest.raises(LoopedError, match="rotary or random on a square"):
        Looped(size, (4,), 3, (3, 3), jax.random.key(0))
    with pytest.raises(LoopedError, match="rotary where positions are in groups"):
        Looped(size, (4,), 3, (6,), jax.random.key(0), ((0, 0, 1, 1, 2, 2),))
