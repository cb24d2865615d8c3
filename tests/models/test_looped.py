"""A looped network: what a position sees, any number of steps, and where gradients flow."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import Looped, LoopedError, LoopedSize
from lapwing.models._blocks import _seen, neighbourhood
from lapwing.models._positions import turned, turns_of
from tests.slow import some

INPUTS = jax.random.randint(jax.random.key(1), (3, 6, 2), 0, 4)
MIXERS = ("convolution", "attention", "dense", "candidates")
GROUPS = ((0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1))
"""Of six positions: pairs, and every other one."""


def looped(mixer="convolution", positions=(6,), channels=2) -> Looped:
    size = LoopedSize(width=8, heads=2, mixer=mixer)
    if mixer == "candidates":
        return Looped(size, (4,), 5, positions, jax.random.key(0), GROUPS, given=1)
    return Looped(size, (4,) * channels, 5, positions, jax.random.key(0))


@pytest.mark.parametrize("positions", [pytest.param((6,), marks=pytest.mark.slow), (5, 4)])
def test_a_product_with_the_neighbourhood_is_a_convolution(positions):
    x = jax.random.normal(jax.random.key(0), (2, *positions, 3))
    weights = jax.random.normal(jax.random.key(1), (*[3] * len(positions), 3, 7))
    letters = "DHW"[-len(positions) :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    want = jax.lax.conv_general_dilated(x, weights, (1,) * len(positions), "SAME", dimension_numbers=numbers)
    got = neighbourhood(x) @ weights.reshape(-1, 7)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("mixer", some(MIXERS, 3))
def test_thinking_and_unrolled_thinking_are_the_same(mixer):
    model = looped(mixer)
    recalled, start = model.recall(INPUTS), model.start(INPUTS)
    states = model.unrolled(start, recalled, 5)
    np.testing.assert_allclose(model.think(start, recalled, 5), states[-1], atol=1e-5)
    np.testing.assert_allclose(
        jax.jit(lambda *given: model.think(*given))(start, recalled, 3), states[2], atol=1e-5
    )
    assert model(INPUTS, 5).shape == (3, 6, 5)


@pytest.mark.parametrize("mixer", some(MIXERS, 0, 3))
def test_a_state_never_grows(mixer):
    state = looped(mixer).think(looped(mixer).start(INPUTS), looped(mixer).recall(INPUTS), 300)
    np.testing.assert_allclose(jnp.mean(state**2, axis=-1), 1.0, rtol=1e-3)


def test_no_gradient_flows_through_thinking_before():
    model = looped()

    def loss(model, before):
        recalled = model.recall(INPUTS)
        state = model.think(model.start(INPUTS), recalled, before)
        return jnp.sum(model.logits(state) ** 2)

    found = jax.grad(loss)(model, 4)
    assert not np.any(found.block.of_state)
    assert np.any(found.head)


def test_a_convolution_takes_fields_of_any_size():
    assert looped()(jnp.ones((2, 50, 2), int), 3).shape == (2, 50, 5)
    squares = looped(positions=(4, 4), channels=1)
    assert squares(jnp.ones((2, 9, 9, 1), int), 3).shape == (2, 9, 9, 5)


@pytest.mark.parametrize("where", [pytest.param((7,), marks=pytest.mark.slow), (4, 5)])
def test_rotary_scores_depend_on_differences_of_positions_only(where):
    """Of one query and one key at all positions."""
    query, key = jax.random.normal(jax.random.key(0), (2, 1, 1, 1, 8))
    turns = turns_of([np.arange(length, dtype=float) for length in where], 8)
    scores = np.einsum("cqhs,ckhs->qk", turned(query, turns), turned(key, turns))
    places = np.stack(np.unravel_index(np.arange(len(turns[0])), where), axis=-1)
    by_difference = {}
    for (a, b), score in np.ndenumerate(scores):
        by_difference.setdefault(tuple(places[a] - places[b]), []).append(score)
    assert len(by_difference) == np.prod(np.subtract(np.multiply(2, where), 1))
    for same in by_difference.values():
        np.testing.assert_allclose(same, same[0], atol=1e-5)
    # All differences are told apart, those to the left from those to the right too.
    assert len({round(float(same[0]), 4) for same in by_difference.values()}) == len(by_difference)


def test_a_head_sees_the_positions_of_a_group_and_the_last_one_all():
    seen = _seen(GROUPS, 4)
    assert [int(each.sum()) for each in seen] == [3 * 4, 2 * 9, 36, 3 * 4]
    assert seen[0][2].tolist() == [False, False, True, True, False, False]
    assert seen[1][2].tolist() == [True, False, True, False, True, False]


@pytest.mark.slow
def test_what_keeps_the_groups_together_moves_the_answers_along():
    """The order of positions means nothing, but who is in a group with whom does."""
    size = LoopedSize(width=12, heads=3, mixer="attention")
    model = Looped(size, (4, 4), 5, (6,), jax.random.key(0), GROUPS)
    together, apart = np.array([2, 3, 0, 1, 4, 5]), np.array([1, 2, 3, 4, 5, 0])
    answers = model(INPUTS, 4)
    np.testing.assert_allclose(model(INPUTS[:, together], 4), answers[:, together], atol=1e-5)
    assert float(jnp.abs(model(INPUTS[:, apart], 4) - answers[:, apart]).max()) > 0.01


def test_attention_tells_before_from_after():
    model = looped("attention")
    assert not np.allclose(model(INPUTS, 2), model(INPUTS[:, ::-1], 2)[:, ::-1], atol=1e-3)


def test_the_state_of_zeros_draws_nothing():
    model = looped()
    assert "random" not in str(jax.make_jaxpr(lambda inputs: model.start(inputs))(INPUTS))
    assert "random" in str(jax.make_jaxpr(lambda inputs, number: model.start(inputs, number))(INPUTS, 0))


@pytest.mark.slow
def test_the_surest_of_several_thoughts_is_taken():
    model = looped()
    each = [model.logits(model.think(model.start(INPUTS, at), model.recall(INPUTS), 3)) for at in range(4)]
    sure = jnp.stack([jnp.mean(jnp.max(jax.nn.log_softmax(one), axis=-1), axis=-1) for one in each])
    found = model.best_of(INPUTS, 3, 4)
    for at, best in enumerate(jnp.argmax(sure, axis=0)):
        np.testing.assert_array_equal(found[at], jnp.argmax(each[int(best)][at], axis=-1))
    assert not np.any(model.start(INPUTS))
    assert np.any(model.start(INPUTS, 1) != model.start(INPUTS, 2))


def test_what_has_settled_is_not_changed_any_more():
    model = looped()
    found = model.until_settled(INPUTS, 60, patience=4)
    assert found.answers.shape == INPUTS.shape[:-1]
    for at, steps in enumerate(found.steps):
        answers = jnp.argmax(model(INPUTS, int(steps)), axis=-1)
        np.testing.assert_array_equal(answers[at], found.answers[at])
    assert int(found.steps.max()) <= 60


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"width": 0}, "width should be at least 1, but is 0"),
        (
            {"mixer": "attention", "width": 12},
            "width should be a multiple of twice the 4 heads, but is 12",
        ),
    ],
)
def test_sizes_that_do_not_fit(options, sentence):
    with pytest.raises(LoopedError, match=sentence):
        dataclasses.replace(LoopedSize(), **options)
