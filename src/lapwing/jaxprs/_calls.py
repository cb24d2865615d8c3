"""Calls that mean something of their own (`cond`, `remat`, `shard_map`), made again around a program run by a rule.

A nested `jit` can be inlined, so `open_calls` steps into it. These cannot: a branch must stay a branch. Each is made
again by the public function that made it, with the program inside interpreted by the rule. What has no such function,
or would lose something by it, is left as it is: custom derivatives (their rules are the user's), while loops (they have
no gradient), remat with a policy (it decides by the operations that the user wrote), and a `shard_map` that checks how
its values vary over the devices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs._interpret import Rule, interpret, open_calls, source_of
from lapwing.jaxprs._read import equations, inner_jaxprs

Run = Callable[..., list[Any]]
"""Runs a program inside a call on its inputs."""


def into_calls(rule: Rule) -> Rule:
    """A rule that asks `rule`, inlines a nested `jit` that it declines, and makes other calls with a loop inside again.

    >>> import jax.numpy as jnp
    >>> def f(xs):
    ...     loop = lambda: jax.lax.scan(lambda c, x: (c + x, None), 0.0, xs)[0]
    ...     return jax.lax.cond(xs[0] > 0, loop, lambda: 0.0)
    >>> closed = jax.make_jaxpr(f)(jnp.ones(3))
    >>> def sum_at_once(eqn, inputs):
    ...     return [jnp.sum(inputs[1])] if eqn.primitive is p.scan_p else None
    >>> again = jax.make_jaxpr(lambda xs: interpret(closed.jaxpr, [xs], into_calls(sum_at_once)))(jnp.ones(3))
    >>> [inner.eqns[-1].primitive.name for inner in inner_jaxprs(again.eqns[-1])[-1:]]
    ['reduce_sum']
    """

    def run(inner: core.ClosedJaxpr) -> Run:
        return lambda *values: interpret(inner.jaxpr, [*inner.consts, *values], opening)

    def rebuilding(eqn: core.JaxprEqn, inputs: list[Any]) -> Sequence[Any] | None:
        outputs = rule(eqn, inputs)
        rebuild = _REBUILD.get(eqn.primitive.name)
        if outputs is not None or rebuild is None or not _has_loop(eqn):
            return outputs
        with source_of(eqn):
            return rebuild(eqn, inputs, run)

    opening = open_calls(rebuilding)
    return opening


def _has_loop(eqn: core.JaxprEqn) -> bool:
    inside = (each for jaxpr in inner_jaxprs(eqn) for each in equations(jaxpr))
    return any(each.primitive is p.scan_p for each in inside)


Inside = Callable[[core.ClosedJaxpr], Run]


def _cond(eqn: core.JaxprEqn, inputs: list[Any], run: Inside) -> list[Any]:
    which, *operands = inputs
    return jax.lax.switch(which, [run(branch) for branch in eqn.params["branches"]], *operands)


def _remat(eqn: core.JaxprEqn, inputs: list[Any], run: Inside) -> list[Any] | None:
    params = eqn.params
    # A program of a backward pass already; and a policy names values as the user wrote them.
    if params["differentiated"] or params["policy"] is not None:
        return None
    inside = run(core.ClosedJaxpr(params["jaxpr"], ()))
    return jax.checkpoint(inside, prevent_cse=params["prevent_cse"])(*inputs)


def _shard_map(eqn: core.JaxprEqn, inputs: list[Any], run: Inside) -> list[Any] | None:
    params = eqn.params
    # With the check, jax follows how each value varies over the devices, which the types of a new loop do not say.
    if params["check_vma"]:
        return None
    sharded = jax.shard_map(
        run(core.ClosedJaxpr(params["jaxpr"], ())),
        mesh=params["mesh"],
        in_specs=params["in_specs"],
        out_specs=list(params["out_specs"]),
        axis_names=params["newly_manual_axes"],
        check_vma=False,
    )
    return sharded(*inputs)


_REBUILD: dict[str, Callable[[core.JaxprEqn, list[Any], Inside], list[Any] | None]] = {
    p.cond_p.name: _cond,
    p.remat_p.name: _remat,
    "shard_map": _shard_map,
}
