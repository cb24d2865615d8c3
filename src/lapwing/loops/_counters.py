"""What is known of a loop's integers before it runs: counters, and indices computed from them.

`fori_loop(0, n, …)` carries a counter, and `xs[i]` computes an index from it (`where(i < 0, i + n, i)`). A carry that
starts at a known number and grows by a literal has a known value in every step, and so has everything that small
integer equations make of it. They are computed here, with numpy, for all steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs
from lapwing.jaxprs import Loop, Values

LARGEST_INDEX = 16
"""Numbers that an index consists of: one per axis."""

Known = dict[core.Var, np.ndarray]
"""Values of all steps, in the order of xs and ys; time is the first axis."""


def counter_steps(loop: Loop) -> dict[int, int]:
    """The carries to which every step adds a literal, and the literal."""
    made_by = {var: eqn for eqn in loop.eqns for var in eqn.outvars}
    found = {}
    for index, (carry, out) in enumerate(zip(loop.carry, loop.carry_out, strict=True)):
        eqn = made_by.get(out) if isinstance(out, core.Var) else None
        if eqn is None or eqn.primitive.name not in ("add", "sub") or not _is_index(carry):
            continue
        literals = [atom.val for atom in eqn.invars if isinstance(atom, core.Literal)]
        subtracts = eqn.primitive.name == "sub"
        if len(literals) == 1 and any(atom is carry for atom in eqn.invars[: 1 if subtracts else 2]):
            found[index] = -int(literals[0]) if subtracts else int(literals[0])
    return found


def known_integers(loop: Loop, init: Values, xs: Values) -> Known:
    """The integers of a step that are known before the loop runs, for all steps."""
    order = np.arange(loop.length)[:: -1 if loop.reverse else 1]
    known: Known = {}
    for index, step in counter_steps(loop).items():
        if is_known_integer(init[index]):
            start = np.asarray(init[index])
            values = start.astype(np.int64) + order * step
            known[loop.carry[index]] = values.astype(jaxprs.dtype(loop.carry[index]))
    for var, value in zip(loop.xs, xs, strict=True):
        if _is_index(var) and is_known_integer(value):
            known[var] = np.asarray(value)
    for eqn in loop.eqns if known else ():
        _add_known(eqn, known)
    return known


def is_known_integer(value: Any) -> bool:
    """Whether a value is integers that can be read now."""
    return not isinstance(value, jax.core.Tracer) and _is_integer(jax.typeof(value).dtype)


def _is_integer(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, np.integer)


def _is_index(atom: jaxprs.Atom) -> bool:
    is_number = _is_integer(jaxprs.dtype(atom)) or jaxprs.dtype(atom) == np.bool_
    return is_number and jaxprs.size(atom) <= LARGEST_INDEX and len(jaxprs.shape(atom)) <= 1


def _add_known(eqn: core.JaxprEqn, known: Known) -> None:
    compute = _NUMPY.get(eqn.primitive.name)
    is_known = [isinstance(atom, core.Literal) or atom in known for atom in eqn.invars]
    if compute is None or not all(is_known) or not all(map(_is_index, [*eqn.invars, *eqn.outvars])):
        return
    (out,) = eqn.outvars
    length = len(next(iter(known.values())))

    def value(atom: jaxprs.Atom) -> np.ndarray:
        if isinstance(atom, core.Var):
            return known[atom]
        return np.broadcast_to(np.asarray(atom.val, jaxprs.dtype(atom)), (length, *jaxprs.shape(atom)))

    found = compute(eqn, [value(atom) for atom in eqn.invars])
    known[out] = np.asarray(found).astype(jaxprs.dtype(out)).reshape(length, *jaxprs.shape(out))


def _elementwise(ufunc: Callable[..., Any]) -> Callable[[core.JaxprEqn, Sequence[np.ndarray]], Any]:
    def compute(eqn: core.JaxprEqn, inputs: Sequence[np.ndarray]) -> Any:
        rank = max(each.ndim for each in inputs)
        return ufunc(*(each.reshape(each.shape + (1,) * (rank - each.ndim)) for each in inputs))

    return compute


def _broadcast(eqn: core.JaxprEqn, inputs: Sequence[np.ndarray]) -> np.ndarray:
    value, *_ = inputs
    # A number becomes a vector; a vector stays one.
    return np.broadcast_to(value.reshape(len(value), -1), (len(value), jaxprs.size(eqn.outvars[0])))


_NUMPY: dict[str, Callable[[core.JaxprEqn, Sequence[np.ndarray]], Any]] = {
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _elementwise(np.multiply),
    "neg": _elementwise(np.negative),
    "max": _elementwise(np.maximum),
    "min": _elementwise(np.minimum),
    "lt": _elementwise(np.less),
    "le": _elementwise(np.less_equal),
    "gt": _elementwise(np.greater),
    "ge": _elementwise(np.greater_equal),
    "eq": _elementwise(np.equal),
    "ne": _elementwise(np.not_equal),
    "clamp": _elementwise(lambda low, value, high: np.minimum(np.maximum(value, low), high)),
    "select_n": _elementwise(lambda which, *cases: np.choose(which, cases)),
    "convert_element_type": lambda eqn, inputs: inputs[0],
    "copy": lambda eqn, inputs: inputs[0],
    "squeeze": lambda eqn, inputs: inputs[0],
    "reshape": lambda eqn, inputs: inputs[0],
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda eqn, inputs: np.concatenate(inputs, 1),
}
