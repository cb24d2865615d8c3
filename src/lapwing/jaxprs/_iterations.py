"""The iterations of a loop: which of them returned something that is not finite, and one of them by itself."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs._interpret import interpret
from lapwing.jaxprs._loop import loop_of

_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint"}
)

INFINITY, NAN = 1, 2


class Extent(NamedTuple):
    """The least and the largest entry of an array, in one pass over it. They are the bits of the floats as integers in
    the order of the floats, with nan beyond infinity: reductions of floats must do something about nan, which is slow
    on a CPU, and on several devices a nan may get lost."""

    least: jax.Array
    largest: jax.Array
    infinity: jax.Array
    dtype: Any


def called_by(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a call runs that can be inlined where nothing is differentiated; None for anything else."""
    if eqn.primitive.name not in _CALLS:
        return None
    inner = next((eqn.params[name] for name in ("call_jaxpr", "jaxpr") if name in eqn.params), None)
    return core.ClosedJaxpr(inner, ()) if isinstance(inner, core.Jaxpr) else inner


def run_quietly(closed: core.ClosedJaxpr, values: Sequence[Any]) -> list[Any]:
    """Runs a program without what it prints, which the step that is looked at has printed already."""
    return interpret(closed.jaxpr, [*closed.consts, *values], _quiet)


def _quiet(eqn: core.JaxprEqn, inputs: list[Any]) -> Sequence[Any] | None:
    if not eqn.outvars and eqn.effects:
        return []
    if (called := called_by(eqn)) is not None:
        return run_quietly(called, inputs)
    if not eqn.effects:
        return None
    if eqn.primitive is p.scan_p:
        loop, closed_over = loop_of(eqn)
        consts, init, xs = loop.split_inputs([*closed_over, *inputs])

        def step(carry: Sequence[Any], x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            outputs = run_quietly(core.ClosedJaxpr(loop.jaxpr, ()), [*consts, *carry, *x])
            return outputs[: loop.num_carry], outputs[loop.num_carry :]

        carry, ys = loop.iterate(step, init, xs)
        return [*carry, *ys]
    if eqn.primitive is p.while_p:
        of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        asks, consts, init = (
            inputs[:of_cond],
            inputs[of_cond : of_cond + of_body],
            inputs[of_cond + of_body :],
        )
        return jax.lax.while_loop(
            lambda carry: run_quietly(eqn.params["cond_jaxpr"], [*asks, *carry])[0],
            lambda carry: run_quietly(eqn.params["body_jaxpr"], [*consts, *carry]),
            list(map(jnp.asarray, init)),
        )
    if eqn.primitive is p.cond_p:
        which, *operands = inputs
        branches = [lambda *values, each=each: run_quietly(each, values) for each in eqn.params["branches"]]
        return jax.lax.switch(which, branches, *operands)
    return None


def badness(extents: Sequence[Extent]) -> jax.Array:
    """NAN where one of the values holds a nan, else INFINITY where one does, else 0.

    >>> badness([extent(jnp.array([[1.0, 2.0], [jnp.inf, 3.0], [jnp.nan, -jnp.inf]]), axis=0)]).tolist()
    [0, 1, 2]
    """
    found = jnp.zeros((), jnp.int32)
    for least, largest, infinity, _ in extents:
        is_nan = (largest > infinity) | (least < -1 - infinity)
        is_bad = (largest >= infinity) | (least <= -1 - infinity)
        found = jnp.maximum(found, is_bad.astype(jnp.int32) + is_nan)
    return found


def ends(of: Extent) -> jax.Array:
    """The least and the largest entry; both nan where there is one.

    >>> ends(extent(jnp.array([2.0, -3.0, 1.0]))).tolist(), ends(extent(jnp.array([jnp.nan, jnp.inf]))).tolist()
    ([-3.0, 2.0], [nan, nan])
    """
    both = jnp.stack([jnp.min(of.least), jnp.max(of.largest)])
    floats = jax.lax.bitcast_convert_type(_in_order(both), of.dtype)
    return jnp.where((both[1] > of.infinity) | (both[0] < -1 - of.infinity), jnp.nan, floats)


def extent(value: Any, axis: int | None = None) -> Extent:
    """The extent of all entries, or of those at each index of an axis."""
    value = jnp.asarray(value)
    value = value.astype(jnp.float16) if value.dtype.itemsize == 1 else value
    kind = {2: jnp.int16, 4: jnp.int32, 8: jnp.int64}[value.dtype.itemsize]
    infinity = jax.lax.bitcast_convert_type(jnp.array(jnp.inf, value.dtype), kind)
    places = _in_order(jax.lax.bitcast_convert_type(value, kind))
    least, largest = jax.lax.reduce(
        (places, places),
        (jnp.array(jnp.iinfo(kind).max, kind), jnp.array(jnp.iinfo(kind).min, kind)),
        lambda one, two: (jnp.minimum(one[0], two[0]), jnp.maximum(one[1], two[1])),
        tuple(each for each in range(value.ndim) if each != axis),
    )
    return Extent(least, largest, infinity, value.dtype)


def has_extent(value: Any) -> bool:
    """Whether it has entries, and these are floats."""
    return jnp.issubdtype(jnp.result_type(value), jnp.floating) and jnp.size(value) > 0


def _in_order(bits: jax.Array) -> jax.Array:
    """The bits of floats as integers in the order of the floats, negative ones too; the same function leads back."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def visit(
    firsts: Sequence[jax.Array],
    init: list[Any],
    advance: Callable[[jax.Array, list[Any]], list[Any]],
    look: Callable[[jax.Array, list[Any]], jax.Array],
) -> list[jax.Array]:
    """What `look` says about some iterations; zeros for those that are none (-1).

    **Arguments:** `firsts` are numbers of iterations, in falling order; `init` is carried into the first iteration,
    `advance(number, carry)` is one without a look, and `look(number, carry)` returns a vector.
    """
    # Called as a function of its own, each input is a value of its own: what is carried may be one array twice.
    look = jax.jit(look)

    def one(state: tuple[jax.Array, list[Any]], target: jax.Array) -> Any:
        number, carry = jax.lax.while_loop(
            lambda state: state[0] < target, lambda state: (state[0] + 1, list(advance(*state))), state
        )
        size = jax.eval_shape(look, number, carry)
        vector = jax.lax.cond(
            target >= 0,
            lambda: look(number, carry),
            lambda: jnp.zeros(size.shape, size.dtype),
        )
        return (number, carry), vector

    start = jnp.zeros((), jnp.int32), init
    _, vectors = jax.lax.scan(one, start, jnp.stack(firsts[::-1]).astype(jnp.int32))
    return list(vectors[::-1])
