"""The equations of a stage on parts: a value is an array of parts, and each part holds a block's rows and units.

The array of parts has the axes of the value, of length 1 where the axis is rows or one set of units. So what cuts,
joins or moves axes is the same operation on the array of parts, and touches no number. Numbers are float32 here,
whatever the loop's type: a part is rounded where it is published or leaves the loop.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from lapwing.jaxprs import Env, bind, dtype, shape
from lapwing.loops.persistent._stages import FLOATS, Stages

Parts = np.ndarray
"""Of objects: arrays, or numbers where a value is a scalar."""


def parts_from(values: Sequence[Any], counts: Sequence[int]) -> Parts:
    """Parts from a list, in the shape of a value's parts."""
    parts = np.empty(len(values), object)
    for index, value in enumerate(values):
        parts[index] = _computed(value)
    return parts.reshape(tuple(counts))


def run(stages: Stages, eqns: Sequence[core.JaxprEqn], env: Env) -> None:
    """Run equations on the parts in `env`, and add their results to it."""
    for eqn in eqns:
        inputs = [read(stages, env, atom) for atom in eqn.invars]
        outputs = _OTHERS.get(eqn.primitive.name, _elementwise)(stages, eqn, *inputs)
        env.update(zip(eqn.outvars, outputs, strict=True))


def read(stages: Stages, env: Env, atom: Any) -> Parts:
    if isinstance(atom, core.Literal):
        # A number of numpy: a kernel cannot close over arrays.
        kind = np.float32 if str(dtype(atom)) in FLOATS else np.dtype(dtype(atom))
        return parts_from([np.asarray(atom.val).astype(kind)[()]], (1,) * len(shape(atom)))
    return env[atom]


def _computed(value: Any) -> Any:
    """In the type in which it is computed."""
    return value.astype(jnp.float32) if str(value.dtype) in FLOATS else value


def _elementwise(stages: Stages, eqn: core.JaxprEqn, *inputs: Parts) -> list[Parts]:
    counts = stages.parts(eqn.outvars[0])
    each = [np.broadcast_to(parts, counts) for parts in inputs]
    out = np.empty(counts, object)
    for index in np.ndindex(*counts):
        out[index] = _one(eqn, [parts[index] for parts in each])
    return [out]


def _one(eqn: core.JaxprEqn, values: list[Any]) -> Any:
    name = eqn.primitive.name
    if name == "convert_element_type":
        new = eqn.params["new_dtype"]
        return values[0].astype(jnp.float32 if str(new) in FLOATS else new)
    if name in ("copy", "copy_p", "name", "stop_gradient"):
        return values[0]
    tile = next((value.shape for value in values if value.shape), ())
    spread = [value if value.shape == tile else jnp.broadcast_to(value, tile) for value in values]
    if name == "integer_pow":
        return _power(spread[0], eqn.params["y"])
    if name in _WRITTEN_OUT:
        return _WRITTEN_OUT[name](*spread)
    return bind(eqn, spread)[0]


# The kernels' compiler does not have these. Exact to a few units in the last place (Kahan's corrections).
def _log1p(x: Any) -> Any:
    u = 1.0 + x
    same = u == 1.0
    return jnp.where(same, x, jnp.log(u) * (x / jnp.where(same, 1.0, u - 1.0)))


def _expm1(x: Any) -> Any:
    u = jnp.exp(x)
    small, large = u == 1.0, u - 1.0 == -1.0
    there = jnp.where(small | large, 2.0, u)
    return jnp.where(small, x, jnp.where(large, -1.0, (u - 1.0) * (x / jnp.log(there))))


def _power(x: Any, y: int) -> Any:
    power = functools.reduce(jnp.multiply, [x] * abs(y)) if y else jnp.ones_like(x)
    return 1.0 / power if y < 0 else power


_WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "add_any": lambda x, y: x + y,
    "expm1": _expm1,
    "log1p": _log1p,
    # Exact in relation to itself, as 1 / (1 + exp(-x)) is, and without a division.
    "logistic": lambda x: jnp.square(lax.rsqrt(1.0 + jnp.exp(-x))),
    "one_minus_square": lambda x: (1.0 - x) * (1.0 + x),
    "sqrt": lambda x: jnp.where(x > 0, x * lax.rsqrt(x), x),
}


# What moves parts ---------------------------------------------------------------------------------------------


def _slice(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
    whole = shape(eqn.invars[0])
    bounds = zip(eqn.params["start_indices"], eqn.params["limit_indices"], whole, x.shape, strict=True)
    index = tuple(slice(start * parts // length, stop * parts // length) if parts > 1 else slice(None)
                  for start, stop, length, parts in bounds)  # fmt: skip
    strides = eqn.params["strides"] or (1,) * len(whole)
    return [x[index][tuple(slice(None, None, step) for step in strides)]]


def _split(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
    axis = eqn.params["axis"]
    counts = [stages.parts(var)[axis] for var in eqn.outvars]
    return np.split(x, np.cumsum(counts)[:-1], axis)


def _concatenate(stages: Stages, eqn: core.JaxprEqn, *inputs: Parts) -> list[Parts]:
    return [np.concatenate(inputs, eqn.params["dimension"])]


def _pad(stages: Stages, eqn: core.JaxprEqn, x: Parts, value: Parts) -> list[Parts]:
    counts, whole = stages.parts(eqn.outvars[0]), shape(eqn.outvars[0])
    tile = next((part for part in x.ravel() if part.shape), value.ravel()[0])
    out = parts_from([jnp.broadcast_to(value.ravel()[0], tile.shape)] * math.prod(counts), counts)
    first = [before * parts // length for (before, _, _), parts, length
             in zip(eqn.params["padding_config"], counts, whole, strict=True)]  # fmt: skip
    out[tuple(slice(start, start + parts) for start, parts in zip(first, x.shape, strict=True))] = x
    return [out]


def _broadcast(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
    counts, dimensions = stages.parts(eqn.outvars[0]), eqn.params["broadcast_dimensions"]
    spread = [1] * len(counts)
    for axis, into in enumerate(dimensions):
        spread[into] = x.shape[axis]
    return [np.broadcast_to(x.reshape(spread), counts)]


def _reshape(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
    return [x.reshape(stages.parts(eqn.outvars[0]))]


def _transpose(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
    return [x.transpose(eqn.params["permutation"])]


def _over_parts(combine: Callable[[Any, Any], Any]) -> Callable[..., list[Parts]]:
    """A reduction over parts; over units it is none of a block alone."""

    def reduce(stages: Stages, eqn: core.JaxprEqn, x: Parts) -> list[Parts]:
        axes = eqn.params["axes"]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        columns = x.transpose(*kept, *axes).reshape(math.prod(x.shape[axis] for axis in kept), -1)
        sums = [functools.reduce(combine, column) for column in columns]
        return [parts_from(sums, stages.parts(eqn.outvars[0]))]

    return reduce


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": jnp.add,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
}
_OTHERS: dict[str, Callable[..., list[Parts]]] = {
    "slice": _slice,
    "split": _split,
    "concatenate": _concatenate,
    "pad": _pad,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    **{name: _over_parts(combine) for name, combine in COMBINE.items()},
}
