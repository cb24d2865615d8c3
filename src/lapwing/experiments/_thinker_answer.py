"""One problem that a person wrote, the answers of a thinker to it, step by step, and when it settles."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from lapwing.data.problems import Problem
from lapwing.models import Looped

from ._thinker_halting import PATIENCE


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
    sure: dict[int, float] | None = None
    """How sure the thinker was after each of these steps, if it learned that."""
    halted: int | None = None
    """The step after which it was sure enough to stop."""

    @property
    def answer(self) -> str:
        return list(self.answers.values())[-1]


def film_of(
    problem: Problem,
    model: Looped,
    inputs: Int[np.ndarray, "*positions channels"],
    most: int,
    least: float | None = None,
) -> Film:
    """Thinks about a problem until its answer has settled, for at most `most` steps.

    **Arguments:**

    - `least`: end when the thinker is as sure as this, in place of when the answer has settled.
    """
    solution = problem.solve(inputs)
    every, sure = answers_over_steps(model, jnp.asarray(inputs)[None], most)
    asked = solution >= 0
    changed = [0, *(at for at in range(1, most) if np.any((every[at] != every[at - 1])[asked]))]
    final = next(
        (at for at, after in zip(changed, [*changed[1:], most], strict=True) if after - at > PATIENCE), None
    )
    last, end = (most - 1, most) if final is None else (final, min(final + PATIENCE + 1, most))
    halted = None if least is None or sure is None else _first_at(sure, least)
    if least is not None:
        last, end = (most - 1, most) if halted is None else (halted, halted + 1)
    shown = [at for at in changed if at <= last]
    if least is not None and last not in shown:
        shown.append(last)
    return Film(
        problem.text(inputs),
        {at + 1: problem.text(inputs, every[at]) for at in shown},
        None if final is None else final + 1,
        end,
        bool(np.all((every[last] == solution)[asked])),
        problem.text(inputs, solution),
        None if sure is None else {at + 1: round(float(sure[at]), 4) for at in shown},
        None if halted is None else halted + 1,
    )


def _first_at(sure: Float[np.ndarray, " steps"], least: float) -> int | None:
    return next((at for at, each in enumerate(sure) if each >= least), None)


def answers_over_steps(
    model: Looped, inputs: Any, steps: int
) -> tuple[Int[np.ndarray, " steps *positions"], Float[np.ndarray, " steps"] | None]:
    """The answers to one problem after each step, and how sure the model was of each, if it learned that."""

    @jax.jit
    def run(model: Looped, inputs: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        recalled = model.recall(inputs)

        def step(before: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array | None]]:
            state = model.step(before, recalled)
            sure = model.halting and jax.nn.sigmoid(model.halting(state, before))[0]
            return state, (jnp.argmax(model.logits(state), axis=-1)[0], sure)

        return jax.lax.scan(step, model.start(inputs), None, length=steps)[1]

    answers, sure = run(model, inputs)
    return np.asarray(answers), None if sure is None else np.asarray(sure)
