"""All checks that apply to a task, one after the other, within a time budget."""

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lapwing.core import LapwingError
from lapwing.task import Task
from lapwing.train import FitConfig, check_metrics
from lapwing.trees import StructureError

from ._budget import Budget, Tell
from ._of_step import CHECKS, QUICK, Check
from ._report import CheckError, CheckInputError
from ._training import Training


@dataclass(frozen=True)
class Outcome:
    """The result of one check. "expected": it failed, and `task.expected_findings` says why that is intended. "error":
    it could not be completed, because something raised; that says nothing about the task.

    >>> outcomes = [Outcome("gradients", "passed", "", 0.4), Outcome("keys", "failed", "two calls use one key", 0.1)]
    >>> [f"{each.check}: {each.detail}" for each in outcomes if each.result == "failed"]
    ['keys: two calls use one key']
    """

    check: str
    result: Literal["passed", "failed", "expected", "not applicable", "skipped", "error"]
    detail: str
    seconds: float


def run_all(
    task: Task,
    config: FitConfig | None = None,
    *,
    only: Sequence[str] = (),
    budget_s: float = 120.0,
    tell: Tell | None = None,
) -> tuple[Outcome, ...]:
    """Runs every check that applies to the training step of `fit(task, config)`.

    **Arguments**

    - `config`: the config of `fit`; the checks see the parameters, batches and updates of a run with it.
    - `only`: the names of the checks to run; by default all.
    - `budget_s`: the time for all checks, which skips those that would start later. A compilation is not interrupted.
    - `tell`: called with a line about the cost of each check that repeats something.

    **Returns** an outcome for each check. Nothing is raised: a task that cannot be trained is one failed outcome called
    "task", and an error inside a check is an outcome of that check with the result "error".

    >>> import jax, jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3), "spare": jnp.zeros(2)},
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ...     loss=lambda params, x: (jnp.mean((x @ (params["w"] - 1)) ** 2), {}),
    ... )
    >>> for outcome in run_all(task, only=("dead_parameters", "scale")):
    ...     print(outcome.check, outcome.result, outcome.detail[:50])
    dead_parameters failed params['spare'] (2 entries) has no effect on the l
    scale not applicable there is no jax.lax.scan in this function; a Pytho
    """
    unknown = [name for name in only if name not in CHECKS]
    if unknown:
        raise CheckInputError(f"{unknown[0]!r} is not a check; there are {', '.join(CHECKS)}")
    started = time.perf_counter()
    if not isinstance(task, Task):
        detail = f"expected a task (lapwing.task.Task), found type {type(task).__name__}"
        return (Outcome("task", "failed", detail, 0.0),)
    try:
        training = Training(task, config or FitConfig())
    except Exception as error:
        own = isinstance(error, LapwingError)
        detail = str(error) if own else f"the functions of the task cannot be called: {_described(error)}"
        return (Outcome("task", "failed", detail, time.perf_counter() - started),)
    budget = Budget(budget_s)
    return tuple(_run(name, CHECKS, training, budget, tell) for name in CHECKS if not only or name in only)


def quick(task: Task, config: FitConfig | None = None) -> tuple[Outcome, ...]:
    """Runs the checks that are cheap, since they compile little, for the start of a training.

    The step keeps the leaves of its state, is the same program when it is traced again, has a gradient for every
    trained leaf, its batches differ, and the updates of the optimizer point downhill.

    **Raises** `CheckError` if one fails, and `ConfigError` if `best` or `stop.metric` is not a metric of this task.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(3),
    ...     data=lambda key, step: jnp.ones((8, 3)),
    ...     loss=lambda w, x: (jnp.mean((x @ (w - 1)) ** 2), {}),
    ... )
    >>> quick(task)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: batch 1 is the same as batch 0, and 1 of 4 batches are different. Look at ...
    """
    training, budget = Training(task, config or FitConfig()), Budget(np.inf)
    outcomes = tuple(_run(name, QUICK, training, budget, refuses=True) for name in QUICK)
    for outcome in outcomes:
        if outcome.result in ("failed", "error"):
            raise CheckError(outcome.check, outcome.detail)
    check_metrics(training.config, training.traced[1][1], training.evaluation_names())
    return outcomes


def _run(
    name: str,
    checks: Mapping[str, Check],
    training: Training,
    budget: Budget,
    tell: Tell | None = None,
    refuses: bool = False,
) -> Outcome:
    """The outcome of one check. With `refuses`, what `fit` refuses too, such as data without a batch, is raised."""
    left = budget.left()
    if left == 0:
        return Outcome(name, "skipped", f"the budget of {budget.seconds:g} s is spent", 0.0)
    started = time.perf_counter()
    try:
        # A check takes half of the time at most, so that one that is slow leaves some for the others.
        result, detail = "passed", checks[name](training, budget_s=left / 2, tell=tell).message
    except CheckInputError as reason:
        result, detail = "not applicable", str(reason)
    except (CheckError, StructureError) as error:
        expected = training.task.expected_findings.get(name)
        result, detail = ("failed", str(error)) if expected is None else ("expected", f"{expected}; {error}")
    except Exception as error:
        if refuses and isinstance(error, LapwingError):
            raise
        result, detail = "error", f"the check could not be completed: {_described(error)}"
    return Outcome(name, result, detail, time.perf_counter() - started)


def _described(error: Exception) -> str:
    """The kind and the first line of an error, and the last line of code outside of installed packages that raised."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "-packages" not in frame.filename
    ]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"
