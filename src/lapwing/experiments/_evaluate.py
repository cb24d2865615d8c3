"""The parameters of a run, from one of its checkpoints, and what its experiment says of them.

`lapwing evaluate` evaluates the task as `fit` does. An experiment that has more to say provides
`evaluate_run(trained, options)`, where `options` is a dataclass of further options of the command; it returns an
`Evaluated`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lapwing.journal import Run

from ._find import Experiment
from ._source import ExperimentError

if TYPE_CHECKING:
    from lapwing.task import Task
    from lapwing.train import State

Which = Literal["best", "newest"]


@dataclass(frozen=True)
class Trained:
    """A run, its config and task, and its state after `step` updates."""

    run: Run
    config: Any
    task: "Task"
    step: int
    state: "State"

    @property
    def params(self) -> Any:
        """Their exponential moving average, where the run keeps one."""
        return self.state.params if self.state.ema is None else self.state.ema


@dataclass(frozen=True)
class Evaluated:
    """What was measured: the numbers, one sentence about them for the journal, and a text for people."""

    numbers: Mapping[str, Any]
    summary: str
    text: str


def load_trained(run: Run, experiment: Experiment, which: Which | int = "best") -> Trained:
    """The state of a run: the best, the newest, or that of a step."""
    from lapwing.train import Checkpoints, config_from, initial_state

    config = config_from(experiment.Config, run.config)
    reader = Checkpoints(run.folder / "checkpoints")
    checkpoint = reader.choose(which, run.name)
    task = experiment.build(config)
    like, _ = initial_state(task, config)
    return Trained(run, config, task, checkpoint.step, reader.restore(like, checkpoint))


def evaluate_trained(trained: Trained) -> Evaluated:
    """Evaluates the task as `fit` does: with the same key, so with the same numbers at the same step."""
    from lapwing.train import make_evaluation

    evaluation = make_evaluation(trained.task, trained.config)
    if evaluation is None:
        raise ExperimentError(
            f"the task of {trained.run.experiment} has no evaluation; give its Task evaluate=, a function of the "
            "parameters and a key"
        )
    numbers = {f"eval_{name}": float(value) for name, value in evaluation(trained.state).items()}
    width = max(map(len, numbers), default=0)
    return Evaluated(
        numbers,
        ", ".join(f"{name} {value:.6g}" for name, value in numbers.items()),
        "\n".join(f"{name:{width}}  {value:.6g}" for name, value in numbers.items()),
    )
