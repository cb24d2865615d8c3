"""A program of small arrays written out number by number, each number a lane: a vector with one entry per machine.

A kernel that holds what it computes in registers has no arrays to slice, concatenate or reduce. Here every array of a
program is a NumPy array of lanes: elementwise operations run lane by lane, sums and maxima are sequences of two-lane
operations, and what only moves numbers moves references and disappears.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from lapwing import jaxprs
from lapwing.loops._small import CALLS, ELEMENTWISE, called

MOVES = frozenset(
    {
        "broadcast_in_dim", "concatenate", "expand_dims", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack",
        "tile", "transpose", "unstack",
    }
)  # fmt: skip
INDEXED = frozenset({"gather", "dynamic_slice"})  # moves too, where the indices are constants
REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": lax.add,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_prod": lax.mul,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
}


class LanesError(Exception):
    """The program holds what cannot be written out number by number."""


def in_lanes(program: core.ClosedJaxpr, *inputs: np.ndarray) -> list[np.ndarray]:
    """Runs a program on arrays of lanes, each of the shape that the program expects.

    >>> program = jax.make_jaxpr(lambda x: jnp.sum(jnp.abs(x[::2])))(jnp.zeros(3))
    >>> lanes = np.empty(3, object)
    >>> lanes[:] = [jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]), jnp.array([-5.0, -6.0])]
    >>> in_lanes(program, lanes)[0].item().tolist()
    [6.0, 8.0]
    """
    found = jaxprs.interpret(program.jaxpr, [*program.consts, *inputs], jaxprs.open_calls(_equation, called))
    return [_lanes(each) for each in found]


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


def _equation(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
    name = eqn.primitive.name
    if name in CALLS:
        return None  # They are opened.
    if all(not _is_lanes(each) for each in inputs):
        with jax.ensure_compile_time_eval():
            return [np.asarray(each) for each in jaxprs.bind(eqn, inputs)]
    if name in ELEMENTWISE:
        return [_elementwise(eqn, inputs)]
    if name in MOVES or (name in INDEXED and not any(map(_is_lanes, inputs[1:]))):
        return _moved(eqn, inputs)
    if name in REDUCTIONS:
        return [_reduced(inputs[0], eqn.params["axes"], REDUCTIONS[name])]
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


def _elementwise(eqn: core.JaxprEqn, inputs: list[Any]) -> np.ndarray:
    shape = jaxprs.shape(eqn.outvars[0])
    given = [np.broadcast_to(_lanes(each), shape) for each in inputs]
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        [made[place]] = jaxprs.bind(eqn, _alike([each[place] for each in given]))
    return made


def _alike(numbers: list[Any]) -> list[Any]:
    """Constants are spread over the lanes: operations take operands of one shape."""
    shape = jnp.broadcast_shapes(*(np.shape(each) for each in numbers))
    return [each if np.shape(each) == shape else jnp.full(shape, each, each.dtype) for each in numbers]


def _moved(eqn: core.JaxprEqn, inputs: list[Any]) -> list[np.ndarray]:
    """Moves the places of the numbers, then looks up who came where."""
    moving = 1 if eqn.primitive.name in INDEXED else len(inputs)
    flat = [_lanes(each).ravel() for each in inputs[:moving]]
    starts = np.cumsum([0, *map(len, flat)])
    places = [
        np.arange(start, start + len(each), dtype=np.int32).reshape(np.shape(given))
        for start, each, given in zip(starts, flat, inputs, strict=False)
    ]
    with jax.ensure_compile_time_eval():
        moved = [np.asarray(each) for each in jaxprs.bind(eqn, [*places, *inputs[moving:]])]
    everything = np.concatenate(flat)
    return [everything[each] for each in moved]


def _reduced(lanes: np.ndarray, axes: tuple[int, ...], both: Callable[[Any, Any], Any]) -> np.ndarray:
    rest = [axis for axis in range(lanes.ndim) if axis not in axes]
    shape = tuple(lanes.shape[axis] for axis in rest)
    rows = lanes.transpose(*rest, *axes).reshape(*shape, -1)
    made = np.empty(shape, object)
    for place in np.ndindex(shape):
        made[place] = functools.reduce(lambda a, b: both(*_alike([a, b])), rows[place])
    return made
