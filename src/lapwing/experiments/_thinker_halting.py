"""When a thinker stops thinking: how it learns to know that, and what each rule costs and gets right."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from lapwing.data.problems import Instances, Problem
from lapwing.models import Halting, Looped

PATIENCE = 8
"""Steps without a change after which an answer is settled."""
SURE = 0.99
"""The probability of being right at which a thinker that knows it stops."""


def halting_loss(
    head: Halting,
    states: Float[Array, "steps ..."],
    right: Bool[Array, "steps count"],
    asked: Bool[Array, " count"],
) -> Array:
    """The mean cross-entropy of the head over problems that ask something, after each step but the first, whose state
    before is not among `states`."""
    logits = jax.vmap(head)(states[1:], states[:-1])
    losses = optax.sigmoid_binary_cross_entropy(logits, right[1:].astype(logits.dtype))
    each = jnp.where(asked, losses, 0.0)
    return jnp.sum(each) / jnp.maximum(len(each) * jnp.sum(asked), 1)


class Trace(NamedTuple):
    """Of each step and problem: whether the answer was right, was that of the step before, and how sure it was."""

    right: Bool[np.ndarray, "steps count"]
    same: Bool[np.ndarray, "steps count"]
    sure: Float[np.ndarray, "steps count"] | None


def trace_of(problem: Problem, model: Looped, instances: Instances, steps: int) -> Trace:
    """What happens while problems are thought about."""
    right, same, sure = _trace(problem, steps, model, instances)
    return Trace(np.asarray(right), np.asarray(same), None if sure is None else np.asarray(sure))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _trace(
    problem: Problem, steps: int, model: Looped, instances: Instances
) -> tuple[Array, Array, Array | None]:
    recalled, state = model.recall(instances.inputs), model.start(instances.inputs)
    axes = tuple(range(1, instances.targets.ndim))

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Any]:
        before, last = carry
        state = model.step(before, recalled)
        answers = jnp.argmax(model.logits(state), axis=-1)
        sure = model.halting and jax.nn.sigmoid(model.halting(state, before))
        found = problem.right(instances, answers), jnp.all(answers == last, axis=axes), sure
        return (state, answers), found

    return jax.lax.scan(step, (state, jnp.full(instances.targets.shape, -1)), None, length=steps)[1]


def halting_rules(
    trace: Trace, fixed: int, least: float = SURE, patience: int = PATIENCE
) -> dict[str, dict[str, float]]:
    """What each rule gets right, and for how many steps it thinks on average and at most, those by which it notices
    included.

    **Arguments:**

    - `fixed`: steps of the rule that always thinks for as many.

    >>> right = np.array([[0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]], bool).T
    >>> same = np.array([[0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1]], bool).T
    >>> for rule, row in halting_rules(Trace(right, same, None), fixed=6, patience=2).items(): print(rule, row)
    fixed {'solved': 1.0, 'steps': 6.0, 'most': 6.0}
    settled {'solved': 0.5, 'steps': 3.5, 'most': 4.0}
    """
    count = trace.right.shape[1]
    last = {"fixed": np.full(count, fixed - 1), "settled": _settled(trace.same, patience)}
    if trace.sure is not None:
        last["sure"] = _first(trace.sure >= least)
    return {
        rule: {
            "solved": float(trace.right[at, np.arange(count)].mean()),
            "steps": float(at.mean() + 1),
            "most": float(at.max() + 1),
        }
        for rule, at in last.items()
    }


def _settled(same: Bool[np.ndarray, "steps count"], patience: int) -> np.ndarray:
    run = np.zeros(same.shape[1], int)
    enough = np.zeros(same.shape, bool)
    for step, now in enumerate(same):
        run = np.where(now, run + 1, 0)
        enough[step] = run >= patience
    return _first(enough)


def _first(true: Bool[np.ndarray, "steps count"]) -> np.ndarray:
    """The first step at which it is; the last step if none is."""
    return np.where(true.any(axis=0), true.argmax(axis=0), len(true) - 1)
