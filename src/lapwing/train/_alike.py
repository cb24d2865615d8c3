"""Whether two tasks compute the same, read from their jaxprs.

The runs of `fit_many` share one compiled step, made from the config of one of them. A task with its seed or learning
rate built in as a constant would train all of them with that one, and nobody would notice.
"""

import re
from typing import Any

import jax
import numpy as np
from jax.extend import core

from lapwing.jaxprs import constants
from lapwing.task import Arrays, Task

from ._config import FitConfig
from ._evaluation import make_evaluation
from ._feed import Fed, first_feds
from ._mask import Mask, mask_of
from ._state import State, initial_state
from ._step import make_phases, take_step


def alike(a: Task, b: Task, config: FitConfig) -> bool:
    """Whether two tasks have the same initial parameters, step and evaluation under a config.

    >>> import jax.numpy as jnp
    >>> def task(goal):
    ...     loss = lambda params, batch: (jnp.sum((params - goal) ** 2), {})
    ...     return Task(init=lambda key: jnp.zeros(3), data=lambda key, step: {}, loss=loss)
    >>> alike(task(1.0), task(1.0), FitConfig()), alike(task(1.0), task(2.0), FitConfig())
    (True, False)
    """
    state, mask = initial_state(a, config)
    one = _program(a, mask, config, state)
    other = _program(b, mask_of(b, state.params), config, state)
    if _text(one) != _text(other):
        return False
    if not _same_arrays(a, b):
        return False
    # The text does not show the values of array constants.
    pairs = zip(constants(one), constants(other), strict=True)
    return all(np.array_equal(x, y, equal_nan=np.issubdtype(x.dtype, np.inexact)) for x, y in pairs)


def _same_arrays(a: Task, b: Task) -> bool:
    if not isinstance(a.source, Arrays) or not isinstance(b.source, Arrays):
        return True
    return all(map(np.array_equal, jax.tree.leaves(a.source.arrays), jax.tree.leaves(b.source.arrays)))


def _program(task: Task, mask: Mask, config: FitConfig, state: State) -> core.ClosedJaxpr:
    phases = make_phases(task, mask, config)
    evaluate = None if task.validation is not None else make_evaluation(task, config)

    def everything(key: jax.Array, state: State, fed: Fed) -> Any:
        return (
            task.init(key),
            task.memory(key) if task.memory else None,
            take_step(phases, state, fed),
            evaluate(state) if evaluate else None,
        )

    return jax.make_jaxpr(everything)(jax.random.key(0), state, first_feds(task, config)[0])


def _text(program: core.ClosedJaxpr) -> str:
    return re.sub("0x[0-9a-f]+", "", str(program))  # Addresses of functions.
