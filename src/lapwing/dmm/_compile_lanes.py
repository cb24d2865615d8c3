"""A program of small arrays written out number by number.

A kernel that holds what it computes in registers has no arrays to slice, concatenate or reduce. Here every array of a
program is a NumPy array of *lanes*. Elementwise operations are written lane by lane, sums and maxima as sequences of
operations of two lanes, and what only moves numbers moves references and disappears. What a lane is, and how an
operation of lanes is written, the writer decides: a vector with an entry for each machine in a kernel of Pallas
(`_compile_kernel`), a number in native code (`native`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.loops._small import CALLS, ELEMENTWISE, called

Moved = list[np.ndarray]
MOVES: dict[str, Callable[..., Moved]] = {
    "broadcast_in_dim": lambda x, *, shape, broadcast_dimensions, **_: [
        _broadcast(x, shape, broadcast_dimensions)
    ],
    "concatenate": lambda *xs, dimension, **_: [np.concatenate([_lanes(x) for x in xs], dimension)],
    "pad": lambda x, value, *, padding_config: [_padded(_lanes(x), _lanes(value)[()], padding_config)],
    "reshape": lambda x, *, new_sizes, **_: [x.reshape(new_sizes)],
    "rev": lambda x, *, dimensions: [np.flip(x, dimensions)],
    "slice": lambda x, *, start_indices, limit_indices, strides: [
        x[tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))]
    ],
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "squeeze": lambda x, *, dimensions: [np.squeeze(x, tuple(dimensions))],
    "transpose": lambda x, *, permutation: [np.transpose(x, permutation)],
}
# What moves numbers too, as jax itself moves their places; the indices must be constants.
PLACED = frozenset({"dynamic_slice", "expand_dims", "gather", "stack", "tile", "unstack"})
REDUCTIONS = {
    "reduce_sum": "add_p",
    "reduce_max": "max_p",
    "reduce_min": "min_p",
    "reduce_prod": "mul_p",
    "reduce_and": "and_p",
    "reduce_or": "or_p",
}

Writer = Callable[[core.Primitive, list[Any], dict[str, Any], Any], Any]
"""(primitive, lanes, its parameters, type of the result) -> a lane. A lane may also be a constant, a NumPy scalar."""


class LanesError(Exception):
    """The program holds what cannot be written out number by number."""


def traced(primitive: core.Primitive, lanes: list[Any], params: dict[str, Any], dtype: Any) -> Any:
    """The writer of a program of jax, in which lanes are vectors: the operation itself."""
    shape = jnp.broadcast_shapes(*(np.shape(each) for each in lanes))
    spread = [each if np.shape(each) == shape else jnp.full(shape, each, each.dtype) for each in lanes]
    return primitive.bind(*spread, **params)


def in_lanes(program: core.ClosedJaxpr, *inputs: np.ndarray, writer: Writer = traced) -> list[np.ndarray]:
    """Runs a program on arrays of lanes, each of the shape that the program expects.

    >>> program = jax.make_jaxpr(lambda x: jnp.sum(jnp.abs(x[::2])))(jnp.zeros(3))
    >>> lanes = np.empty(3, object)
    >>> lanes[:] = [jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]), jnp.array([-5.0, -6.0])]
    >>> in_lanes(program, lanes)[0].item().tolist()
    [6.0, 8.0]
    """
    rule = jaxprs.open_calls(functools.partial(_equation, writer), called)
    return [_lanes(each) for each in jaxprs.interpret(program.jaxpr, [*program.consts, *inputs], rule)]


def check_lanes(program: core.ClosedJaxpr) -> None:
    """Raises `LanesError` for a program that cannot be written out."""
    shapes = [(x.shape, jax.ShapeDtypeStruct((1,), x.dtype)) for x in program.in_avals]

    def written_out(lanes: list[list[jax.Array]]) -> None:
        arrays = [np.empty(shape, object) for shape, _ in shapes]
        for array, numbers in zip(arrays, lanes, strict=True):
            for place, number in zip(np.ndindex(array.shape), numbers, strict=True):
                array[place] = number
        in_lanes(program, *arrays)

    jax.eval_shape(written_out, [[lane] * math.prod(shape) for shape, lane in shapes])


def _equation(writer: Writer, eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
    name = eqn.primitive.name
    if name in CALLS:
        return None  # They are opened.
    # A literal is a number of Python, whose type the equation knows.
    inputs = [
        each if _is_lanes(each) else np.asarray(each, jaxprs.dtype(atom))
        for each, atom in zip(inputs, eqn.invars, strict=True)
    ]
    if name in MOVES:
        return MOVES[name](*inputs, **eqn.params)
    if all(not _is_lanes(each) for each in inputs):
        with jax.ensure_compile_time_eval():
            return [np.asarray(each) for each in jaxprs.bind(eqn, inputs)]
    if name in ELEMENTWISE:
        return [_elementwise(writer, eqn, inputs)]
    if name in PLACED and (name not in ("dynamic_slice", "gather") or not any(map(_is_lanes, inputs[1:]))):
        return _placed(eqn, inputs)
    if name in REDUCTIONS:
        both = functools.partial(_both, writer, getattr(p, REDUCTIONS[name]), jaxprs.dtype(eqn.outvars[0]))
        return [_reduced(inputs[0], eqn.params["axes"], both)]
    raise LanesError(f"{name} is not written out number by number")


def _is_lanes(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _lanes(value: Any) -> np.ndarray:
    """Constants too as an array of objects: numbers of their type."""
    if _is_lanes(value):
        return value
    value = np.asarray(value)
    found = np.empty(value.shape, object)
    for place in np.ndindex(value.shape):
        found[place] = value[place]
    return found


def _elementwise(writer: Writer, eqn: core.JaxprEqn, inputs: list[Any]) -> np.ndarray:
    shape, dtype = jaxprs.shape(eqn.outvars[0]), jaxprs.dtype(eqn.outvars[0])
    given = [np.broadcast_to(_lanes(each), shape) for each in inputs]
    params = eqn.primitive.get_bind_params(eqn.params)
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        made[place] = writer(eqn.primitive, [each[place] for each in given], params, dtype)
    return made


def _both(writer: Writer, primitive: core.Primitive, dtype: Any, a: Any, b: Any) -> Any:
    return writer(primitive, [a, b], {}, dtype)


def _broadcast(x: np.ndarray, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> np.ndarray:
    sizes = [1] * len(shape)
    for size, dimension in zip(x.shape, dimensions, strict=True):
        sizes[dimension] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _padded(x: np.ndarray, value: Any, config: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Padding may be negative, which cuts off, and between the numbers."""
    for axis, (low, high, between) in enumerate(config):
        size = x.shape[axis] + between * max(x.shape[axis] - 1, 0)
        shape = (*x.shape[:axis], max(low, 0) + size + max(high, 0), *x.shape[axis + 1 :])
        wider = np.empty(shape, object)
        wider.fill(value)
        ahead = (slice(None),) * axis
        wider[(*ahead, slice(max(low, 0), max(low, 0) + size, between + 1))] = x
        x = wider[(*ahead, slice(max(-low, 0), wider.shape[axis] - max(-high, 0)))]
    return x


def _placed(eqn: core.JaxprEqn, inputs: list[Any]) -> list[np.ndarray]:
    """Moves the places of the numbers, then looks up who came where."""
    moving = 1 if eqn.primitive.name in ("dynamic_slice", "gather") else len(inputs)
    flat = [_lanes(each).ravel() for each in inputs[:moving]]
    starts = np.cumsum([0, *map(len, flat)])
    places = [
        np.arange(start, start + len(each), dtype=np.int32).reshape(np.shape(given))
        for start, each, given in zip(starts, flat, inputs, strict=False)
    ]
    with jax.ensure_compile_time_eval():
        moved = [np.asarray(each) for each in jaxprs.bind(eqn, [*places, *inputs[moving:]])]
    return [np.concatenate(flat)[each] for each in moved]


def _reduced(lanes: np.ndarray, axes: tuple[int, ...], both: Callable[[Any, Any], Any]) -> np.ndarray:
    rest = [axis for axis in range(lanes.ndim) if axis not in axes]
    shape = tuple(lanes.shape[axis] for axis in rest)
    rows = lanes.transpose(*rest, *axes).reshape(*shape, -1)
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        made[place] = functools.reduce(both, rows[place])
    return made
