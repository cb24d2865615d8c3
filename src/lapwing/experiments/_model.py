"""The model of a run: what its experiment makes of the parameters that it has learned."""

import inspect
from typing import Any

from lapwing.core import LapwingError
from lapwing.journal import Run
from lapwing.train import config_from, initial_state

from ._find import find
from ._keep import read_source


class NoModelError(LapwingError, ValueError):
    """An experiment that does not say how to make a model of parameters."""


def load_model(run: Run, which: Any = "best") -> Any:
    """Calls the experiment's `model(config, params)`, with the config of the run and the parameters of a checkpoint, as
    an evaluation sees them: averaged if the run has `ema`. One with a third argument is given the state of the model.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import lapwing as lw
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text('''
    ... import jax.numpy as jnp
    ... from lapwing.task import Task
    ... task = Task(init=lambda key: jnp.ones(2), data=lambda key, step: 1.0, loss=lambda w, x: (jnp.sum(w * x), {}))
    ... def model(config, params):
    ...     return lambda x: jnp.sum(params * x)
    ... ''')
    >>> net = lw.experiments.find(str(file))
    >>> config = net.Config(steps=1, laps_every=0)
    >>> with lw.Run.create("net", config, runs_dir=file.parent) as run:
    ...     lw.experiments.keep_source(run, net)
    ...     _ = lw.train.fit(net.build(config), config, run, quiet=True)
    >>> load_model(run)(2.0).shape
    ()
    """
    experiment = find(*read_source(run))
    if experiment.model is None:
        raise NoModelError(
            f"the experiment {run.experiment} has no function model(config, params); write one, or use "
            "run.params(...), which returns the arrays"
        )
    config = config_from(experiment.Config, run.config)
    state, _ = initial_state(experiment.build(config), config)
    params = run.params(which, like=state.params, part="params" if state.ema is None else "ema")
    if len(inspect.signature(experiment.model).parameters) < 3:
        return experiment.model(config, params)
    return experiment.model(config, params, run.params(which, like=state.model, part="model"))
