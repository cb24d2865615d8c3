"""One problem that a person wrote, the answers of a thinker to it, step by step, and when it settles."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from lapwing.data.problems import Problem
from lapwing.models import Looped

PATIENCE = 8
"""Steps without a change after which an answer is final."""


@dataclass(frozen=True)
class Film:
    """The answers after each step that changed something, as a person writes them."""

    problem: str
    answers: dict[int, str]
    settled: int | None
    """The step after which the answer has not changed any more; None if it still did at the end."""
    steps: int
    right: bool
    solution: str

    @property
    def answer(self) -> str:
        return list(self.answers.values())[-1]


def film_of(
    problem: Problem, model: Looped, inputs: Int[np.ndarray, "*positions channels"], most: int
) -> Film:
    """Thinks about a problem until its answer has settled, for at most `most` steps."""
    solution = problem.solve(inputs)
    every = answers_over_steps(model, jnp.asarray(inputs)[None], most)
    asked = solution >= 0
    changed = [0, *(at for at in range(1, most) if np.any((every[at] != every[at - 1])[asked]))]
    final = next(
        (at for at, after in zip(changed, [*changed[1:], most], strict=True) if after - at > PATIENCE), None
    )
    last = most - 1 if final is None else final
    shown = {at + 1: problem.text(inputs, every[at]) for at in changed if at <= last}
    return Film(
        problem.text(inputs),
        shown,
        None if final is None else final + 1,
        min(last + PATIENCE + 1, most),
        bool(np.all((every[last] == solution)[asked])),
        problem.text(inputs, solution),
    )


def answers_over_steps(model: Looped, inputs: Any, steps: int) -> np.ndarray:
    """The answers to one problem, after each step."""

    @jax.jit
    def run(model: Looped, inputs: jax.Array) -> jax.Array:
        recalled = model.recall(inputs)

        def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            state = model.step(state, recalled)
            return state, jnp.argmax(model.logits(state), axis=-1)[0]

        return jax.lax.scan(step, model.start(inputs), None, length=steps)[1]

    return np.asarray(run(model, inputs))
