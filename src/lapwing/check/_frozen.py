"""Leaves that the optimizer freezes on purpose: the update that it makes of their gradient is a constant zero.

`optax.set_to_zero` makes zeros of nothing; a learning rate of zero, a clip or a condition makes them of the gradient.
A table that words are looked up in is usually frozen if it was made elsewhere; random rows, which say nothing about
words, are reported.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._optimizer import transformation_of
from ._partition import by_path
from ._program import among, read
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


def random_tables(training: Training, frozen: Sequence[str]) -> list[str]:
    """Of the leaves that the optimizer freezes, the tables that integers of the batch read and that are random."""
    if not frozen:
        return []
    batch = training.batch_shapes()
    program = read(training.loss_as_written, params=training.params, batch=batch)
    names = {var: path for path, var in program.inputs["params"].items()}
    of_batch = program.dependent("batch")
    read_by_batch = {
        names[table]
        for eqn in program.eqns
        if eqn.primitive.name == "gather" and among(eqn.invars[1], of_batch)
        if among(table := program.source(eqn.invars[0]), names)
    }
    made: Any = training.task.init(jax.random.key(7))
    other = by_path(made[0] if training.task.has_state else made, "params")
    ours = by_path(training.params, "params")
    return [
        path
        for path in frozen
        if path in read_by_batch and path in other and not np.array_equal(ours[path], other[path])
    ]
