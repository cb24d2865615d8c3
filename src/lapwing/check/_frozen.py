"""Leaves that the optimizer freezes on purpose: the update that it makes of their gradient is a constant zero.

`optax.set_to_zero` makes zeros of nothing; a learning rate of zero, a clip or a condition makes them of the gradient.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core

from lapwing import jaxprs

from ._optimizer import transformation_of
from ._partition import by_path
from ._program import read
from ._training import Training


def frozen_by_the_optimizer(training: Training, paths: Sequence[str]) -> list[str]:
    """Of these leaves, which do not change, those whose update does not depend on their gradient."""
    made: Any = training.task.optimizer
    if not hasattr(made, "update"):
        made = made(float(training.state.controls[training.state.rate_name]))
    made = transformation_of(made)
    trained = jax.tree.map(
        lambda leaf, train: None if train is False else leaf, training.params, training.mask
    )
    try:
        program = read(
            lambda gradient, state, value: made.update(gradient, state, value)[0],
            params=trained,
            state=jax.eval_shape(made.init, trained),
            value=trained,
        )
    except Exception:
        return []  # It needs more than a gradient and parameters.
    found = []
    for path, out in zip(by_path(trained, "params"), program.closed.jaxpr.outvars, strict=True):
        own = program.inputs["params"][path]
        depends = isinstance(out, core.Var) and (out is own or out in jaxprs.depends_on(program.eqns, [own]))
        if path in paths and not depends:
            found.append(path)
    return found
