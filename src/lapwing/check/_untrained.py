"""Weights that the model multiplies with and that nothing trains: they are no parameters, but constants of the program.

A layer that is a function and no module, a static field, weights that are drawn again in each call:
the model works, learns with the rest of its layers, and is worse than it should be. What looks like weights that are
drawn at random, and is multiplied with activations (what depends on parameters and batch), is meant to be trained, or
to be declared frozen: in the parameters with a `trainable` of False, or behind a `stop_gradient`. Constants are common,
so what has a structure (a transform, an adjacency, a rotation) is left alone, and so is a model of which the smaller
part is trained, as in fine-tuning.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._inner import inner_programs
from ._jaxprs import place
from ._partition import is_float
from ._program import Program, among, read
from ._report import Report, fail

_SMALLEST = 12
_PRODUCTS = ("dot_general", "conv_general_dilated")


def untrained(predict: Callable[..., Any], params: PyTree, batch: PyTree, *more: PyTree) -> Report:
    """`predict(params, batch)` must not multiply its activations with weights that are no parameters.

    It finds matrices and kernels that look like random weights, and are constants: arrays that the function closes
    over or that a module holds beside its parameters, and those that are drawn with a constant key in each call.

    **Arguments**

    - `predict`: the model or its loss; `more` are further arguments of it, such as a state or a key.

    >>> import jax, jax.numpy as jnp
    >>> out = jax.random.normal(jax.random.key(1), (8, 3))
    >>> untrained(lambda w, x: jnp.tanh(x @ w) @ out, jnp.ones((4, 8)), jnp.ones((2, 4)))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the weights of shape (8, 3) with which the model multiplies its activations at ...
    """
    named = {f"more{n}": each for n, each in enumerate(more)}
    program = read(predict, params=params, batch=batch, **named)
    found = list(_constant_weights(program, {}))
    trained = sum(leaf.size for leaf in jax.tree.leaves(params) if is_float(leaf))
    total = sum(value.size for _, value in {id(value): (0, value) for _, value in found}.values())
    if found and total < trained:
        eqn, value = found[0]
        more_of_them = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        fail(
            "untrained",
            f"the weights of shape {value.shape} with which the model multiplies its activations at "
            f"{place(eqn)}{more_of_them} are not trained: they are a constant, not among the parameters, and look "
            "as if they were drawn at random",
            "where they are made: they belong in the parameters that init returns (not to a function that closes over "
            "them, nor to a static field); to freeze them on purpose, let trainable be False for them, or write "
            "jax.lax.stop_gradient(weights)",
            [place(eqn)],
        )
    return Report(
        "untrained",
        "all weights that activations are multiplied with are parameters"
        + (f", but for {total} entries of a model that is mostly frozen" if found else ""),
        {"constants": len(found)},
    )


def _constant_weights(
    program: Program, known: Mapping[core.Var, np.ndarray]
) -> Iterator[tuple[core.JaxprEqn, np.ndarray]]:
    """Products of an activation and a constant that looks like weights, also inside loops. `known` are the inputs of a
    loop that are constants outside."""
    constants = _Constants(program, known)
    if not all(name in program.inputs for name in ("params", "batch")):
        return
    active = program.dependent("params") & program.dependent("batch")
    for eqn in program.eqns:
        if eqn.primitive.name not in _PRODUCTS:
            continue
        for mine, other in (eqn.invars, eqn.invars[::-1]):
            value = constants.of(other) if among(mine, active) else None
            if value is not None and looks_drawn(value):
                yield eqn, value
    for inner in inner_programs(program):
        outside = {var: constants.of(atom) for var, atom in inner.outside.items()}
        given = {
            var: value if value.shape == jaxprs.shape(var) else value[0]  # one of stacked layers
            for var, value in outside.items()
            if value is not None
        }
        yield from _constant_weights(inner.program, given)


class _Constants:
    """The values of a program that depend on none of its inputs."""

    def __init__(self, program: Program, known: Mapping[core.Var, np.ndarray]) -> None:
        self._program = program
        jaxpr = program.closed.jaxpr
        free = [var for var in jaxpr.invars if var not in known]
        self._varying = jaxprs.depends_on(jaxpr.eqns, free)
        self._known = dict(known) | dict(zip(jaxpr.constvars, program.closed.consts, strict=True))

    def of(self, atom: Any) -> np.ndarray | None:
        """The value of a constant array; None for what varies, is small, or is declared to be frozen."""
        if not isinstance(atom, core.Var) or atom in self._varying or jaxprs.size(atom) < _SMALLEST:
            return None
        if not jnp.issubdtype(jaxprs.dtype(atom), jnp.floating) or len(jaxprs.shape(atom)) < 2:
            return None
        jaxpr = self._program.closed.jaxpr
        behind = jaxprs.needed(jaxpr.eqns, [atom])
        if any(eqn.primitive.name == "stop_gradient" or eqn.effects for eqn in behind):
            return None
        inputs = jaxprs.reads(behind, [atom])
        made = jaxprs.part(jaxpr, behind, inputs, [atom])
        (value,) = jaxprs.interpret(made, [self._known[var] for var in inputs])
        return np.asarray(value)


def looks_drawn(value: np.ndarray) -> bool:
    """Whether an array looks like weights that are drawn at random: entries of both signs around zero, nearly all of
    them different, and neither symmetric nor a rotation.

    >>> drawn = np.random.default_rng(0).normal(size=(6, 5))
    >>> looks_drawn(drawn), looks_drawn(np.eye(6)), looks_drawn(drawn @ drawn.T), looks_drawn(np.linalg.qr(drawn)[0])
    (True, False, False, False)
    """
    entries = np.asarray(value, np.float64)
    if not np.isfinite(entries).all():
        return False
    size = float(np.sqrt(np.mean(entries**2)))
    sizes = np.unique(np.round(np.abs(entries) / (size or 1.0), 5))
    is_signed = 0.2 < float(np.mean(entries > 0)) < 0.8 and abs(float(np.mean(entries))) < 0.5 * size
    return sizes.size > 0.9 * entries.size and is_signed and not _has_structure(entries)


def _has_structure(matrix: np.ndarray) -> bool:
    """Whether it is symmetric, or its columns (or rows) are at right angles."""
    flat = matrix.reshape(-1, matrix.shape[-1])
    if flat.shape[0] == flat.shape[1] and np.allclose(np.abs(flat), np.abs(flat.T), rtol=1e-4, atol=1e-6):
        return True
    small = flat if flat.shape[0] <= flat.shape[1] else flat.T
    gram = small @ small.T
    off = gram - np.diag(np.diag(gram))
    return len(gram) > 1 and float(np.abs(off).max()) < 1e-3 * float(np.diag(gram).max())
