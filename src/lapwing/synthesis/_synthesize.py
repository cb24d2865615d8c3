"""Trains machines of a generous wiring from random starts, all at once, and prunes them until no link can go
(`_rounds`); then simplifies what is left (`_tidy`). It is one task for `lapwing.train.fit`, in rounds, so it can be
watched, steered, stopped and resumed like any other.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from lapwing.dmm import Machine, MachineError
from lapwing.journal import RunWriter
from lapwing.task import Callback, CallbackEvent, Penalty, Rounds, Task
from lapwing.train import FitResult, fit

from ._config import SynthesisConfig
from ._examples import Examples
from ._optimizer import paced_adam
from ._phases import first_rows
from ._rounds import Pruning
from ._tidy import tidied
from ._wiring import Wirings


@dataclass(frozen=True)
class Synthesized:
    """The result of one start: its machine, the number of soft links, and its squared error, summed over cycles and
    averaged over texts. `dropped` starts were given up on the way; `restarts` says how many times it got new random
    weights, `tidying` how the machine was simplified."""

    start: int
    machine: Machine
    links: int
    error: float
    dropped: bool
    tidying: tuple[str, ...] = ()
    restarts: int = 0


@dataclass(frozen=True)
class Synthesis:
    """The results of all starts, the best first, and the links and errors of each start after each round.

    >>> from lapwing import dmm
    >>> parity = dmm.Machine.load("parity")
    >>> starts = Synthesized(0, parity, 7, 0.0, dropped=False), Synthesized(1, parity, 30, 0.4, dropped=True)
    >>> found = Synthesis(starts, np.zeros((1, 2, 2)), fit=None)
    >>> found.best is parity, found.successes(links=15, error=1e-3)
    (True, 1)
    """

    machines: tuple[Synthesized, ...]
    path: Float[np.ndarray, "rounds starts 2"]
    fit: FitResult

    @property
    def best(self) -> Machine:
        return self.machines[0].machine

    def successes(self, links: int, error: float) -> int:
        """The number of starts that ended with at most this many links and at most this error."""
        return sum(each.links <= links and each.error <= error for each in self.machines)


def synthesize(
    examples: Examples | Sequence[Examples],
    student: Machine,
    config: SynthesisConfig | None = None,
    run: RunWriter | None = None,
    *,
    quiet: bool = False,
) -> Synthesis:
    """Trains and prunes the student until it is a machine that a person can read, from several random starts.

    With several `examples` (of different lengths, for instance) all machines learn from the first; the others are added
    when the machines are small and long runs cost little.

    >>> from lapwing import dmm
    >>> examples = Examples.from_teacher(dmm.duplicate_detector(), ["a.ab", "b..a"], 50)
    >>> small = SynthesisConfig(starts=1, steps=20, train_steps=10, round_steps=10, steps_per_call=10)
    >>> found = synthesize(examples, dmm.feedforward_student(layers=1, width=1), small, quiet=True)
    >>> found.machines[0].links < 100
    True
    """
    config = config or SynthesisConfig()
    wirings = wirings_of(examples, student, config)
    result = fit(task_of(wirings, config), config, run, quiet=quiet)
    return outcome(wirings, config, result)


def synthesis_task(
    examples: Examples | Sequence[Examples],
    student: Machine,
    config: SynthesisConfig,
    tests: Mapping[str, Examples] | None = None,
) -> Task:
    """Returns the same as a task for `lapwing.train.fit`. At its end the machines, pictures and the `tests` of the best
    machine are written to the run folder.

    >>> from lapwing import dmm
    >>> examples = Examples.from_teacher(dmm.duplicate_detector(), ["a.ab", "b..a"], 50)
    >>> student = dmm.feedforward_student(layers=1, width=1)
    >>> task = synthesis_task(examples, student, SynthesisConfig(starts=1), tests={"seen": examples})
    >>> sorted(task.penalties), task.rounds.every
    (['lasso'], 250)
    """
    wirings = wirings_of(examples, student, config)
    return dataclasses.replace(task_of(wirings, config), callbacks=[WriteResults(wirings, config, tests)])


class WriteResults(Callback):
    """Writes the machines to the run folder at the end, and prints a summary."""

    def __init__(self, wirings: Wirings, config: SynthesisConfig, tests: Mapping[str, Examples] | None):
        self._wirings, self._config = wirings, config
        self._tests = tests or {f"examples-{i}": each for i, each in enumerate(wirings.examples, start=1)}

    def on_end(self, event: CallbackEvent) -> str:
        from ._results import summary, write_results  # It imports this module.

        synthesis = outcome(self._wirings, self._config, event.result)
        if event.run is not None:
            write_results(synthesis, self._tests, event.run, **self._wirings.options)
        return summary(synthesis, self._tests, **self._wirings.options)


def wirings_of(examples: Examples | Sequence[Examples], student: Machine, config: SynthesisConfig) -> Wirings:
    groups = [examples] if isinstance(examples, Examples) else list(examples)
    if not groups or not student.soft():
        missing = "examples to learn from" if not groups else "soft links in the student"
        raise MachineError(f"a synthesis needs {missing}, but found none")
    options = {"governor": config.governor, "accumulator_gradient": config.accumulator_gradient}
    return Wirings(student, groups, **options)


def task_of(wirings: Wirings, config: SynthesisConfig) -> Task:
    """The task of training all machines, in rounds."""
    soft, rounds = wirings.soft, -(-config.steps // config.round_steps) + 1
    machines = config.starts

    def init(key: jax.Array) -> dict[str, jax.Array]:
        draws = config.spread * jax.random.normal(key, (machines, len(soft)))
        rows = {name: jnp.asarray(array) for name, array in first_rows(machines, soft, rounds).items()}
        return {**rows, "leaves": jnp.where(soft, draws, wirings.start)}

    def trainable(params: dict[str, jax.Array]) -> dict[str, np.ndarray | bool]:
        return {name: np.tile(soft, (machines, 1)) if name == "leaves" else False for name in params}

    losses: dict[Any, Any] = {}

    def loss_of(params: Mapping[str, np.ndarray]) -> Any:
        total = wirings.loss(params["wiring"], params["active"])
        return losses.setdefault(total, _task_loss(total))

    def sum_of_weights(params: dict[str, jax.Array]) -> jax.Array:
        sizes = jnp.sum(jnp.abs(params["leaves"]) * (params["kept"] & soft), axis=1)
        return jnp.sum(sizes * params["lasso"] * params["active"])

    return Task(
        init=init,
        data=lambda key, step: {},
        loss=loss_of(first_rows(machines, soft, 1)),
        penalties={"lasso": Penalty(config.lasso, sum_of_weights)},
        trainable=trainable,
        optimizer=lambda learning_rate: paced_adam(learning_rate, machines, config.round_steps),
        rounds=Rounds(config.round_steps, Pruning(wirings, config).turn, loss_of),
    )


def _task_loss(total: Any) -> Any:
    def loss(params: dict[str, jax.Array], batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        value, errors = total(params["leaves"], params["kept"])
        # Those at rest are not run.
        known = jnp.where(params["active"], errors, jnp.where(params["alive"], params["error"], jnp.inf))
        return value, {"best_error": jnp.min(known), "links": jnp.min(jnp.sum(params["kept"], axis=1))}

    return loss


def outcome(
    wirings: Wirings, config: SynthesisConfig, result: FitResult, *, tidy_up: bool = True
) -> Synthesis:
    """The machines at the end of a training, simplified; first those that are right, by size."""
    rows = {name: np.asarray(array) for name, array in result.params.items()}
    found = []
    for k in range(config.starts):
        # Links whose removal is still on trial are kept.
        on_trial = rows["cut"][k].any()
        kept = rows["kept"][k] | rows["cut"][k]
        leaves = np.where(on_trial, rows["before"][k], rows["leaves"][k])
        error = float(wirings.errors(rows["wiring"][k], leaves, kept[None])[0])
        dropped, steps = not rows["alive"][k], ()
        machine = wirings.machine(leaves, kept)
        if tidy_up and not dropped and error <= config.bound:
            machine, error, steps = tidied(wirings, machine, error, allowed=config.bound)
        restarts = int(rows["restarts"][k])
        found.append(Synthesized(k, machine, len(machine.soft()), error, dropped, tuple(steps), restarts))

    def rank(each: Synthesized) -> tuple[bool, int, float]:
        wrong = each.error > config.bound
        return wrong, 0 if wrong else each.links, each.error

    return Synthesis(tuple(sorted(found, key=rank)), rows["path"][: int(rows["round"])], result)
