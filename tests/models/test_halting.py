"""Halting: a head that says how sure the answer is, and thinking that ends when it is."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import Halting, Looped, LoopedError, LoopedSize

INPUTS = jax.random.randint(jax.random.key(1), (6, 5, 1), 0, 4)


def looped(**options) -> Looped:
    return Looped(LoopedSize(width=8, heads=2, **options), (4,), 3, (5,), jax.random.key(0))


@pytest.fixture(scope="module")
def model() -> Looped:
    return looped(halting=True)


def states_of(model, steps):
    """The states before the first step, and after each."""
    start = model.start(INPUTS)
    return [start, *model.unrolled(start, model.recall(INPUTS), steps)]


def test_the_head_does_not_change_the_other_weights(model):
    plain = looped()
    assert plain.halting is None
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(model), strict=False):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_one_doubtful_position_is_enough():
    doubt = jnp.array([[20.0, 0.0], [0.0, 0.0]])
    head = eqx.tree_at(
        lambda head: (head.of_state, head.narrow, head.narrow_bias),
        jax.tree.map(jnp.zeros_like, Halting(2, jax.random.key(0))),
        (doubt, jnp.array([-1.0, 0.0]), jnp.array(12.0)),
    )
    sure = jnp.zeros((1, 100, 2))
    doubtful = sure.at[0, 50, 0].set(1.0)
    assert head(sure, sure)[0] == pytest.approx(12 - np.log(100), abs=1e-3)  # The odds of a mistake add up.
    assert head(doubtful, doubtful)[0] == pytest.approx(-8, abs=0.1)


def test_no_gradient_of_the_head_reaches_the_network(model):
    def loss(model):
        before, state = states_of(model, 2)[1:]
        return jnp.sum(model.halting(state, before))

    found = jax.grad(loss)(model)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(found.halting))
    network = jax.tree.leaves((found.block, found.embeddings, found.norm, found.widen, found.head))
    assert not any(np.any(leaf) for leaf in network)


def test_thinking_ends_at_the_first_step_that_is_sure(model):
    # With larger weights its answers change for some steps, so that it matters which of them are kept.
    model = eqx.tree_at(lambda model: model.block.narrow, model, 3 * model.block.narrow)
    states = states_of(model, 12)
    sure = np.array([jax.nn.sigmoid(model.halting(*pair)) for pair in zip(states[1:], states, strict=False)])
    least = float(np.median(sure[1])) - 1e-6
    reached = (sure >= least).any(axis=0)
    first = np.where(reached, (sure >= least).argmax(axis=0), 11)
    assert len(set(first.tolist())) > 1
    answers = [jnp.argmax(model.logits(state), axis=-1) for state in states[1:]]
    assert (
        sum(bool(jnp.any(answers[step][at] != answers[max(first)][at])) for at, step in enumerate(first)) > 1
    )
    found = model.until_sure(INPUTS, 12, least)
    np.testing.assert_array_equal(found.steps, first + 1)
    for at, step in enumerate(first):
        np.testing.assert_allclose(found.sure[at], sure[step, at], rtol=1e-4)
        np.testing.assert_array_equal(found.answers[at], answers[step][at])


def test_nothing_is_thought_when_all_are_sure(model):
    assert model.until_sure(INPUTS, 12, 1e-6).steps.tolist() == [1] * 6


@pytest.mark.slow
def test_the_head_chooses_among_several_thoughts(model):
    recalled = model.recall(INPUTS)
    sure, answers = [], []
    for number in range(4):
        before = model.think(model.start(INPUTS, number), recalled, 2)
        state = model.step(before, recalled)
        sure.append(model.halting(state, before))
        answers.append(jnp.argmax(model.logits(state), axis=-1))
    best = jnp.argmax(jnp.stack(sure), axis=0)
    found = model.best_of(INPUTS, 3, 4, "halting")
    for at, number in enumerate(best):
        np.testing.assert_array_equal(found[at], answers[int(number)][at])
    assert len(set(best.tolist())) > 1


def test_who_did_not_learn_it_cannot_halt():
    with pytest.raises(LoopedError, match="has no head for it; train with LoopedSize"):
        looped().until_sure(INPUTS, 3)
    with pytest.raises(LoopedError, match="has no head for it"):
        looped().best_of(INPUTS, 3, 2, "halting")
