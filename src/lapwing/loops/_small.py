"""Small loops on a CPU as one kernel.

XLA compiles every operation of a CPU loop as a kernel of its own, and starting one takes longer than adding a few
numbers. A `call` with the attribute `xla_cpu_small_call` is compiled as a single kernel, loop and all; but what that
kernel can hold is not checked, so it may also be refused, be slower, or end the process. Here is what it can hold:
elementwise work, reductions and moves of data, few numbers at a time, of types and sizes that were tried
(`tests/loops/test_small.py`). What it cannot hold and is common, products and scatters, is written out as sums.

Whether a loop is small is known only when it is lowered (`_lowering`), for `vmap` and `grad` change it after it was
traced.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, loop_from, loop_of, open_calls
from lapwing.loops._marks import marked, unmarked
from lapwing.loops._written_out import SCATTERS, written_out

_KERNEL = {"xla_cpu_small_call": "true", "inlineable": "false"}
# What is inside the call would inherit these.
_INSIDE = {"xla_cpu_small_call": "false", "inlineable": "true"}


def small_scan(f: Callable[..., Any], init: Any, xs: Any, **options: Any) -> tuple[Any, Any]:
    """`jax.lax.scan`, nothing moved, that is one kernel where it is small: for loops with derivatives of their own.

    >>> import jax.numpy as jnp
    >>> float(small_scan(lambda h, x: (h + x, None), 0.0, jnp.arange(4.0))[0])
    6.0
    """

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        with unmarked():
            return f(carry, x)

    with marked():
        return lax.scan(step, init, xs, **options)


# What is small ------------------------------------------------------------------------------------------------

# More numbers than this in one array, and starting a kernel takes no time next to what it does.
LARGEST = 192
# Multiplications of one product, and numbers of one sum: XLA gives sums of 4096 to a library that no kernel can call.
LARGEST_SUM = 1024
# LLVM optimizes the kernel as a whole, in a time that grows faster than the number of equations.
MOST_EQUATIONS = 600
# XLA makes loops of so few bytes a step one kernel of its own accord, in which products of so few multiplications are
# faster than ours, which are sums.
TINY, LEFT_TO_XLA = 32, 600
FEWEST_STEPS = 8
# A product of this many multiplications may be worth moving out of the loop, should `vmap` make it larger.
WORTH_MOVING = 128

# By name, since not every release of jax has all of them.
ELEMENTWISE = frozenset(
    {
        "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil",
        "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh", "div", "eq", "erf", "erf_inv", "erfc",
        "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic",
        "lt", "max", "min", "mul", "name", "ne", "neg", "not", "one_minus_square", "or", "pow", "reduce_precision",
        "rem", "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
        "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
    }
)  # fmt: skip
MOVES = frozenset(
    {
        "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "iota",
        "pad", "reshape", "rev", "slice", "split", "squeeze", "stack", "tile", "transpose",
        "unstack",
    }
)  # fmt: skip
REDUCTIONS = frozenset(
    {
        "argmax", "argmin", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum",
        "cumsum", "cumprod", "cummax", "cummin",
    }
)  # fmt: skip
CALLS = frozenset(
    {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint"}
)
CHOICES = frozenset({"cond", "while"})
DTYPES = frozenset({"bool", "float32", "float64", "int32", "int64", "uint32"})


def stays_small(loop: Loop) -> bool:
    """Whether the loop is small as it was written, and holds nothing worth moving out of it."""
    eqns = jaxprs.equations(loop.jaxpr)
    return fits(loop) and not any(_multiplications(eqn) > WORTH_MOVING for eqn in eqns)


def fits(loop: Loop) -> bool:
    """Whether the loop can be one kernel, and is faster as one."""
    return obstacle(loop) is None


def obstacle(loop: Loop) -> str | None:
    """Why the loop is not one kernel; None if it is."""
    if loop.length < FEWEST_STEPS:
        return f"it has {loop.length} steps only"
    if sum(1 for _ in jaxprs.equations(loop.jaxpr)) > MOST_EQUATIONS:
        return f"its step has more than {MOST_EQUATIONS} equations"
    if (found := _obstacle(loop.jaxpr)) is not None:
        return found
    largest = max(map(_multiplications, jaxprs.equations(loop.jaxpr)), default=0)
    if 0 < largest <= TINY and _bytes(loop) <= LEFT_TO_XLA:
        return "it is so small that XLA makes it one kernel itself"
    return None


def _bytes(loop: Loop) -> int:
    """What the equations of a step read and write."""
    return sum(jaxprs.nbytes(atom) for eqn in loop.eqns for atom in [*eqn.invars, *eqn.outvars])


def _obstacle(jaxpr: core.Jaxpr) -> str | None:
    for variable in [*jaxpr.constvars, *jaxpr.invars]:
        if (found := _bad_value(variable, LARGEST_SUM)) is not None:
            return found
    for eqn in jaxpr.eqns:
        if (found := _bad_equation(eqn)) is not None:
            return found
    return None


def _bad_value(atom: jaxprs.Atom, largest: int) -> str | None:
    if str(getattr(atom.aval, "dtype", "no array")) not in DTYPES:
        return f"it computes with {atom.aval}"
    if jaxprs.size(atom) > largest:
        return f"a step holds an array of {jaxprs.size(atom)} numbers, more than {largest}"
    return None


def _bad_equation(eqn: core.JaxprEqn) -> str | None:
    name = eqn.primitive.name
    if eqn.effects:
        return f"{name} has side effects"
    if eqn.ctx.compute_type is not None:
        return f"{name} runs elsewhere: {eqn.ctx.compute_type}"
    through = eqn.primitive in (p.dot_general_p, p.scan_p) or name in CALLS
    for atom in [*eqn.invars, *eqn.outvars]:
        if (found := _bad_value(atom, LARGEST_SUM if through else LARGEST)) is not None:
            return found
    if name in ELEMENTWISE or name in MOVES or name in REDUCTIONS:
        return None
    if eqn.primitive is p.dot_general_p:
        return _too_many(_multiplications(eqn), "multiplications in a product")
    if name in SCATTERS:
        return _too_many(jaxprs.size(eqn.invars[0]) * jaxprs.size(eqn.invars[2]), f"comparisons in a {name}")
    if eqn.primitive is p.scan_p or name in CALLS:
        inner = jaxprs.inner_jaxprs(eqn)
    elif name in CHOICES:
        inner = jaxprs.inner_jaxprs(eqn)
        if any(
            each.primitive in (p.scan_p, p.dot_general_p) for one in inner for each in jaxprs.equations(one)
        ):
            return f"{name} holds a loop or a product"
    else:
        return f"it holds {name}"
    return next((found for each in inner if (found := _obstacle(each)) is not None), None)


def _too_many(count: int, what: str) -> str | None:
    return f"there are {count} {what}, more than {LARGEST_SUM}" if count > LARGEST_SUM else None


def _multiplications(eqn: core.JaxprEqn) -> int:
    if eqn.primitive is not p.dot_general_p:
        return 0
    (contracted, _), _ = eqn.params["dimension_numbers"]
    shape = jaxprs.shape(eqn.invars[0])
    return jaxprs.size(eqn.outvars[0]) * math.prod(shape[axis] for axis in contracted)


# The kernel ---------------------------------------------------------------------------------------------------


def called(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a call calls; by now nobody asks for its derivative."""
    if eqn.primitive.name not in CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if (inner := eqn.params.get(name)) is not None:
            return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())
    return None


def small_kernel(*inputs: Any, **params: Any) -> list[Any]:
    """A small loop, from the parameters of its `scan` equation, as one kernel."""
    loop, closed_over = loop_from(params)

    # XLA ends the process if nothing in the kernel reads one of its arguments. To return them is to read them; the
    # barriers keep jax from passing them around the kernel, and XLA from putting those that it knows into it.
    @jax.jit
    def loop_kernel(*values: Any) -> tuple[list[Any], Sequence[Any]]:
        with set_xla_metadata(**_INSIDE):
            return _run(loop, values), lax.optimization_barrier(values)

    values = lax.optimization_barrier([*closed_over, *inputs])
    with set_xla_metadata(**_KERNEL):
        return loop_kernel(*values)[0]


def _run(loop: Loop, values: jaxprs.Values) -> list[Any]:
    consts, init, xs = loop.split_inputs(values)

    def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        out = interpret(loop.jaxpr, [*consts, *carry, *x], open_calls(_inside, called))
        return out[: loop.num_carry], out[loop.num_carry :]

    carry, ys = loop.iterate(step, init, xs)
    return [*carry, *ys]


def _inside(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
    """Inside the kernel, loops are no kernels of their own, and products and scatters are sums."""
    if eqn.primitive is p.scan_p:
        loop, closed_over = loop_of(eqn)
        return _run(loop, [*closed_over, *inputs])
    return written_out(eqn, inputs)
