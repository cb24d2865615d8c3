"""A block with a vector for each candidate: what it sees, and what may be renamed and moved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import Looped, LoopedError, LoopedSize
from lapwing.models._candidates import GIVEN, OPEN, OTHER, Candidates, said_of_candidates

GROUPS = ((0, 0, 1, 1, 2, 2), (0, 1, 0, 1, 0, 1))
"""Of six positions: pairs, and every other one."""
CLASSES = 4
EMPTY, GIVEN_FIRST = 1, 2
INPUTS = jnp.array([[[1], [2], [1], [5], [3], [1]], [[4], [1], [1], [1], [2], [3]]])


def looped(**options) -> Looped:
    size = LoopedSize(width=8, mixer="candidates", **options)
    return Looped(size, (6,), CLASSES, (6,), jax.random.key(0), GROUPS, given=GIVEN_FIRST)


def test_what_is_said_of_candidates():
    said = said_of_candidates(jnp.array([EMPTY, GIVEN_FIRST + 3]), GIVEN_FIRST, CLASSES)
    assert said.tolist() == [[OPEN] * 4, [OTHER, OTHER, OTHER, GIVEN]]


def test_a_step_is_what_it_says_written_one_candidate_at_a_time():
    block = Candidates(8, 16, jax.random.key(0), GROUPS)
    h, x = jax.random.normal(jax.random.key(1), (2, 3, 6, CLASSES, 8))
    message = jax.nn.gelu(h @ block.message)
    want = np.zeros(h.shape)
    for n, p, c in np.ndindex(h.shape[:3]):
        hidden = h[n, p, c] @ block.of_state + x[n, p, c] @ block.of_input + block.bias
        hidden += message[n, p].sum(axis=0) / np.sqrt(CLASSES) @ block.of_position
        for kind, group in enumerate(GROUPS):
            same = [q for q in range(6) if group[q] == group[p]]
            hidden += sum(message[n, q, c] for q in same) / np.sqrt(len(same)) @ block.of_group[kind]
        want[n, p, c] = h[n, p, c] + jax.nn.gelu(hidden) @ block.narrow
    np.testing.assert_allclose(block(h, block.recall(x)), want, atol=1e-5)


@pytest.mark.slow
def test_renaming_the_classes_renames_the_answers():
    model, names = looped(), np.array([2, 0, 3, 1])
    token = np.array([0, EMPTY, *(GIVEN_FIRST + names)])
    logits = model(INPUTS, 5)
    np.testing.assert_allclose(model(token[INPUTS], 5)[..., names], logits, atol=1e-5)
    assert float(jnp.abs(model(token[INPUTS], 5) - logits).max()) > 0.01


def test_what_keeps_the_groups_together_moves_the_answers_along():
    model = looped()
    together, apart = np.array([2, 3, 0, 1, 4, 5]), np.array([1, 2, 3, 4, 5, 0])
    logits = model(INPUTS, 4)
    np.testing.assert_allclose(model(INPUTS[:, together], 4), logits[:, together], atol=1e-5)
    assert float(jnp.abs(model(INPUTS[:, apart], 4) - logits[:, apart]).max()) > 0.01


@pytest.mark.slow
def test_answers_have_no_axis_of_candidates():
    model = looped(halting=True)
    assert model.best_of(INPUTS, 3, 2).shape == (2, 6)
    assert model.until_settled(INPUTS, 9).answers.shape == (2, 6)
    assert model.until_sure(INPUTS, 3).answers.shape == (2, 6)


def test_candidates_are_for_problems_with_groups_and_given_answers():
    with pytest.raises(LoopedError, match="but is candidates"):
        Looped(LoopedSize(mixer="candidates"), (6,), CLASSES, (6,), jax.random.key(0))
    with pytest.raises(LoopedError, match="but is candidates"):
        Looped(LoopedSize(mixer="candidates"), (6,), CLASSES, (6,), jax.random.key(0), GROUPS)
