"""Runs a jaxpr one operation at a time, loops by a Python loop.

Compiling hundreds of random programs takes minutes; running them like this does not, since small operations of the same
shapes are compiled once. It is also a second opinion: nothing here knows how a scan is compiled.
"""

from typing import Any

import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs import interpret, loop_of, open_calls


def run(closed: core.ClosedJaxpr, *values: Any) -> list[Any]:
    return interpret(closed.jaxpr, [*closed.consts, *values], RULE)


def _by_python(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
    if eqn.primitive is not p.scan_p:
        return None
    loop, closed_over = loop_of(eqn)
    consts, carry, xs = loop.split_inputs([*closed_over, *inputs])
    order = range(loop.length)
    rows: dict[int, list[Any]] = {}
    for t in reversed(order) if loop.reverse else order:
        out = interpret(loop.jaxpr, [*consts, *carry, *(x[t] for x in xs)], RULE)
        carry, rows[t] = out[: loop.num_carry], out[loop.num_carry :]
    return [*carry, *(jnp.stack([jnp.asarray(rows[t][i]) for t in order]) for i in range(len(rows[0])))]


def _called(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return core.ClosedJaxpr(inner, ()) if isinstance(inner, core.Jaxpr) else inner


RULE = open_calls(_by_python, _called)
