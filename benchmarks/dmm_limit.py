"""The time that the arithmetic of a program takes on one core: what it multiplies, adds, divides and takes roots of, at
the rates of this processor.

The rates are measured, as one kernel on 192 numbers: once every operation reads its numbers from the nearest cache and
writes them there ("cache"), which a program that is not fused would reach; once a chain of twelve operations keeps them
in registers ("registers"), which nothing can beat. What only moves numbers is free, and so is starting an operation.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

import lapwing as lw
from lapwing import jaxprs
from lapwing.bench.measure import best
from lapwing.loops._small import ELEMENTWISE, REDUCTIONS

NUMBERS, STEPS = 192, 2000
REPEATED = {"cache": 1, "registers": 12}
FREE = frozenset({"convert_element_type", "copy", "name", "select_n", "stop_gradient", "and", "or", "not"})
ROOTS = frozenset({"sqrt", "rsqrt", "exp", "log", "tanh", "logistic", "pow"})


def rates(repeated: int) -> dict[str, float]:
    """Seconds for a multiplication and an addition, for a division and an addition, and for a root, of one number."""
    bodies: dict[str, Callable[[jax.Array], jax.Array]] = {
        "add": lambda x: x * 0.999 + 0.001,
        "divide": lambda x: 1.5 / x + 0.1,
        "root": jnp.sqrt,
    }
    return {name: _seconds(body, repeated) / (NUMBERS * STEPS * repeated) for name, body in bodies.items()}


def _seconds(body: Callable[[jax.Array], jax.Array], repeated: int) -> float:
    def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        for _each in range(repeated):
            x = body(x)
        return x, None

    run = jax.jit(lambda x: lw.scan(step, x, None, length=STEPS)[0])
    start = jnp.linspace(1.0, 2.0, NUMBERS)
    return best(lambda: jax.block_until_ready(run(start)), rounds=30, repeats=1)


def operations(jaxpr: core.Jaxpr, times: int = 1) -> dict[str, int]:
    """How many a program does: multiply-adds of products, other additions and the like, divisions, roots."""
    found = {"product": 0, "add": 0, "divide": 0, "root": 0}
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        size = max(map(jaxprs.size, [*eqn.outvars, *(eqn.invars if name in REDUCTIONS else ())]), default=0)
        if found_in := jaxprs.inner_jaxprs(eqn):
            inner = times * eqn.params.get("length", 1) if name == "scan" else times
            for each in found_in[:1]:  # of a function with a derivative of its own, the function
                for kind, count in operations(each, inner).items():
                    found[kind] += count
        elif jaxprs.flops(eqn):
            found["product"] += times * jaxprs.flops(eqn) // 2
        elif name == "div":
            found["divide"] += times * size
        elif name in ROOTS:
            found["root"] += times * size
        elif (name in ELEMENTWISE and name not in FREE) or name in REDUCTIONS:
            found["add"] += times * size
    return found


def limits(function: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """Seconds at both rates, and what they are made of."""
    counts = operations(jax.make_jaxpr(function)(*given).jaxpr)
    found: dict[str, Any] = {"operations": counts}
    for name, repeated in REPEATED.items():
        costs = rates(repeated)
        seconds = sum(count * costs["add" if kind == "product" else kind] for kind, count in counts.items())
        found[name] = {"seconds": seconds, "rates": costs}
    return found
