"""The planted mistakes and the correct programs are whole: what they need is there, and all can be traced."""

from typing import Any

import jax
import pytest

from benchmarks.planted_again.clean_programs import CLEAN as CLEAN_AGAIN
from benchmarks.planted_again.silent_bugs import BUGS as BUGS_AGAIN
from benchmarks.planted_mistakes.clean_programs import CLEAN
from benchmarks.planted_mistakes.harm import learn, measure
from benchmarks.planted_mistakes.silent_bugs import BUGS
from lapwing.task import Arrays, Task


@pytest.mark.parametrize(("bugs", "clean"), [(BUGS, CLEAN), (BUGS_AGAIN, CLEAN_AGAIN)])
def test_the_set_is_complete(bugs: dict[str, Any], clean: dict[str, Any]):
    assert (len(bugs), len(clean)) == (44, 17)
    assert not set(bugs) & set(clean)
    for bug in bugs.values():
        assert bug.build.__doc__
        assert len(bug.source.removeprefix("Planted. What one sees: ")) > 20, bug.name


def _shapes(task: Task) -> tuple[Any, Any]:
    """The shapes of the parameters, and of the loss."""
    key = jax.random.key(0)
    made = jax.eval_shape(task.init, key)
    params, *state = made if task.has_state else (made,)
    batch: Any = task.data
    if isinstance(batch, Arrays):
        batch = jax.tree.map(lambda leaf: leaf[: task.data.batch_size], batch.arrays)
    else:
        batch = jax.eval_shape(task.data, key, 0)
    if task.prepare is not None:
        batch = jax.eval_shape(task.prepare, params, batch, key)
    more = (*state, key) if task.has_state else (key,) if task.has_key else ()
    if task.predict is not None:
        jax.eval_shape(task.predict, params, batch, *state)
    return jax.tree.structure(params), jax.eval_shape(task.loss, params, batch, *more)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_mistake_and_its_twin_are_of_one_kind(name: str):
    wrong, fixed = (_shapes(BUGS[name].build(is_wrong)[0]) for is_wrong in (True, False))
    assert wrong == fixed
    assert fixed[1].shape == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_a_correct_program_has_a_loss(name: str):
    assert _shapes(CLEAN[name].build()[0])[1].shape == ()


@pytest.mark.slow
def test_harm_is_what_the_twin_measures():
    numbers = measure(BUGS["window_ends_on_its_target"].build)
    assert numbers["mistake by itself"] < 0.2 * numbers["twin"]
    assert numbers["mistake by its twin"] > 2 * numbers["twin"]
    first, last = learn(CLEAN["frozen_embeddings"].build)["first and last"]
    assert last < first
