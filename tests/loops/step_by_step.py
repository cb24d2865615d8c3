"""Runs a jaxpr one operation at a time, loops by a Python loop.

Compiling hundreds of random programs takes minutes; running them like this does not, since small operations of the same
shapes are compiled once. It is also a second opinion: nothing here knows how a scan is compiled.
"""

from typing import Any

import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.loops._jaxprs import scan_counts


def run(closed: core.ClosedJaxpr, *values: Any) -> list[Any]:
    return _run(closed.jaxpr, closed.consts, values)


def _run(jaxpr: core.Jaxpr, consts: Any, values: Any) -> list[Any]:
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *values], strict=True))
    for eqn in jaxpr.eqns:
        inputs = [a.val if isinstance(a, core.Literal) else env[a] for a in eqn.invars]
        env.update(zip(eqn.outvars, _apply(eqn, inputs), strict=True))
    return [a.val if isinstance(a, core.Literal) else env[a] for a in jaxpr.outvars]


def _apply(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
    if eqn.primitive is p.scan_p:
        return _scan(eqn.params, inputs)
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    if isinstance(inner, core.ClosedJaxpr):
        return _run(inner.jaxpr, inner.consts, inputs)
    if isinstance(inner, core.Jaxpr):
        return _run(inner, [], inputs)
    out = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def _scan(params: Any, inputs: list[Any]) -> list[Any]:
    first, carried = scan_counts(params)
    last = first + carried
    consts, carry, xs = inputs[:first], inputs[first:last], inputs[last:]
    order = range(params["length"])
    rows: dict[int, list[Any]] = {}
    for t in reversed(order) if params["reverse"] else order:
        out = _run(params["jaxpr"].jaxpr, params["jaxpr"].consts, [*consts, *carry, *(x[t] for x in xs)])
        carry, rows[t] = out[: len(carry)], out[len(carry) :]
    return [*carry, *(jnp.stack([jnp.asarray(rows[t][i]) for t in order]) for i in range(len(rows[0])))]
