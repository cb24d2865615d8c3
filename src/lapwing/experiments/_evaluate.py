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
    """A run, its config and task, and its state after `step` updates.

    >>> from types import SimpleNamespace
    >>> state = SimpleNamespace(params={"w": 1.0}, ema={"w": 0.9})   # of `lapwing.train.fit`
    >>> Trained(run=None, config=None, task=None, step=100, state=state).params
    {'w': 0.9}
    """

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
    """What was measured: the numbers, one sentence about them for the journal, and a text for people.

    >>> found = Evaluated({"eval_loss": 0.25}, "eval_loss 0.25", "eval_loss  0.25")
    >>> found.numbers["eval_loss"], found.summary
    (0.25, 'eval_loss 0.25')
    """

    numbers: Mapping[str, Any]
    summary: str
    text: str


def load_trained(run: Run, experiment: Experiment, which: Which | int = "best") -> Trained:
    """The state of a run: the best, the newest, or that of a step.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import lapwing as lw
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text('''
    ... import jax.numpy as jnp
    ... from lapwing.task import Task
    ... task = Task(init=lambda key: jnp.ones(2), data=lambda key, step: 1.0, loss=lambda w, x: (jnp.sum(w * x), {}))
    ... ''')
    >>> net = lw.experiments.find(str(file))
    >>> config = net.Config(steps=1, laps_every=0)
    >>> with lw.Run.create("net", config, runs_dir=file.parent) as run:
    ...     _ = lw.train.fit(net.build(config), config, run, quiet=True)
    >>> load_trained(run, net, "newest").params.shape
    (2,)
    """
    from lapwing.train import Checkpoints, config_from, initial_state

    config = config_from(experiment.Config, run.config)
    reader = Checkpoints(run.folder / "checkpoints")
    checkpoint = reader.choose(which, run.name)
    task = experiment.build(config)
    like, _ = initial_state(task, config)
    return Trained(run, config, task, checkpoint.step, reader.restore(like, checkpoint))


def evaluate_trained(trained: Trained) -> Evaluated:
    """Evaluates the task as `fit` does: with the same key, so with the same numbers at the same step.

    >>> import jax, jax.numpy as jnp
    >>> from lapwing.task import Task
    >>> from lapwing.train import FitConfig, initial_state
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()),
    ...     data=lambda key, step: 1.0,
    ...     loss=lambda w, x: ((w - x) ** 2, {}),
    ...     evaluate=lambda w, key: {"error": jnp.abs(w - 1.0)},
    ... )
    >>> state, _ = initial_state(task, FitConfig())
    >>> evaluate_trained(Trained(None, FitConfig(), task, 0, state)).summary
    'eval_error 1'
    """
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
