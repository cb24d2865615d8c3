"""Weights in the state of a model: random numbers that training hands on as they are, as if they were statistics.

An `nnx.Variable` in the place of an `nnx.Param`, a buffer in the place of a parameter: the model adds it to what it has
learned, and it stays what was drawn at the beginning. Random features that read the inputs are meant to stay.
"""

from typing import Any

import jax
import numpy as np

from lapwing.core import format_list

from ._jaxprs import place
from ._modes import is_named
from ._partition import by_path, is_float
from ._program import SHAPES, Program, among, read
from ._report import fail
from ._training import Training

_MEETS = frozenset(["add", "mul", "dot_general", "add_any", "conv_general_dilated"])
_PARTS = SHAPES | {"slice", "gather", "dynamic_slice"}
_FEWEST = 8


def check_kept(training: Training) -> None:
    """Raises if a state that is drawn at random, and that no step changes, meets what depends on the parameters."""
    task, key = training.task, jax.random.key(0)
    predict: Any = task.predict
    state, batch = training.state.model, training.batch_shapes()
    random = _random(training)
    if not random:
        return
    more = (key,) if task.has_key else ()
    step = read(
        lambda p, b, s: task.loss(p, b, s, *more)[2], params=training.params, batch=batch, state=state
    )
    before = step.inputs["state"]
    after = dict(zip(before, step.closed.jaxpr.outvars, strict=True))
    still = [path for path in random if step.source(after[path]) is before[path]]
    if not still:
        return
    program = read(lambda p, b, s: predict(p, b, s), params=training.params, batch=batch, state=state)
    met = {path: eqn for path in still if (eqn := _meeting(program, path)) is not None}
    if met:
        fail(
            "untrained",
            f"{format_list(list(met), 4)} is drawn at random and never trained: it is a state of the model, no step "
            f"changes it, and the model combines it with what it has learned ({place(next(iter(met.values())))})",
            "whether it should be a parameter: nnx.Param in the place of nnx.Variable, a parameter in the place of a "
            "buffer or of an entry of the state",
            list(met),
        )


def _random(training: Training) -> list[str]:
    """The leaves of the state that the key of the initialization decides: many different numbers of both signs. Running
    statistics of an earlier training are none of them: they are subtracted, or called so."""
    state = by_path(training.state.model, "state")
    others = by_path(training.task.init(jax.random.key(7))[1], "state")
    return [
        path
        for path, leaf in state.items()
        if is_float(leaf)
        and not is_named(path)
        and np.size(leaf) >= _FEWEST
        and len(np.unique(leaf)) > np.size(leaf) / 2
        and np.min(leaf) < 0 < np.max(leaf)
        and path in others
        and not np.array_equal(leaf, others[path])
    ]


def _meeting(program: Program, path: str) -> Any:
    """Where a leaf of the state meets a value that depends on parameters and batch."""
    leaf = program.inputs["state"][path]
    learned = program.dependent("params") & program.dependent("batch")
    for eqn in program.eqns:
        is_read = any(program.source(atom, _PARTS) is leaf for atom in eqn.invars)
        if eqn.primitive.name in _MEETS and is_read and any(among(atom, learned) for atom in eqn.invars):
            return eqn
    return None
