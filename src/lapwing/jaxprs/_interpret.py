"""The interpreter: runs a jaxpr equation by equation, with a rule that may take over any of them.

A rule is a function of an equation and the values of its inputs. It returns the values of the outputs, or None to
decline; then the equation runs as it is, with whatever program it calls (`scan`, `cond`, `jit`, a custom derivative)
left intact. Values can be anything that the rule understands: arrays, tracers, or wrappers around them.

Rules compose: `open_calls(rule)` first asks `rule`, then steps into calls, with the same rule for what is inside.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jax.extend import core, source_info_util
from jax.extend.core import primitives as p

from lapwing.jaxprs._read import equations

Values = Sequence[Any]
Env = dict[core.Var, Any]
Rule = Callable[[core.JaxprEqn, list[Any]], Sequence[Any] | None]


def decline(eqn: core.JaxprEqn, inputs: Values) -> None:
    """The rule that takes over nothing."""


def interpret(jaxpr: core.Jaxpr, values: Values, rule: Rule = decline) -> list[Any]:
    """Run a jaxpr.

    **Arguments**

    - `jaxpr`: the program.
    - `values`: for its constvars, then for its invars.
    - `rule`: called as `rule(eqn, inputs)` for each equation; returns the outputs, or None to run it as it is.

    **Returns** the outputs, flat.

    >>> import jax, jax.numpy as jnp
    >>> closed = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(0.0)
    >>> def cosine_for_sine(eqn, inputs):
    ...     return [jnp.cos(*inputs)] if eqn.primitive.name == "sin" else None
    >>> [float(y) for y in interpret(closed.jaxpr, [0.0], cosine_for_sine)]
    [2.0]
    """
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], values, strict=True))
    run_equations(jaxpr.eqns, env, rule)
    return [_read(env, atom) for atom in jaxpr.outvars]


def run_equations(eqns: Iterable[core.JaxprEqn], env: Env, rule: Rule = decline) -> None:
    """Run equations on the values in `env`, and add their results to it."""
    for eqn in eqns:
        inputs = [_read(env, atom) for atom in eqn.invars]
        outputs = rule(eqn, inputs)
        env.update(zip(eqn.outvars, bind(eqn, inputs) if outputs is None else outputs, strict=True))


def _read(env: Env, atom: core.Var | core.Literal) -> Any:
    return atom.val if isinstance(atom, core.Literal) else env[atom]


def bind(eqn: core.JaxprEqn, inputs: Values) -> list[Any]:
    """Run one equation as it is."""
    with source_of(eqn):
        out = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


@contextlib.contextmanager
def source_of(eqn: core.JaxprEqn) -> Iterator[None]:
    """What is traced in here gets the equation's source line, name stack and context (precision, …)."""
    source, call = eqn.source_info, _call.get()
    traceback = source.traceback if call is None or _has_line(eqn) else call.source_info.traceback
    stack = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(traceback, name_stack=stack), eqn.ctx.manager:
        yield


_call: contextvars.ContextVar[core.JaxprEqn | None] = contextvars.ContextVar("call", default=None)


@contextlib.contextmanager
def _opened(call: core.JaxprEqn) -> Iterator[None]:
    """What runs in here is inside a call: where it has no line of the user's, as in jax's own functions, it gets that
    of the call."""
    token = _call.set(call if _has_line(call) else _call.get())
    try:
        yield
    finally:
        _call.reset(token)


def _has_line(eqn: core.JaxprEqn) -> bool:
    return bool(source_info_util.summarize(eqn.source_info))


def plain_call(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a nested `jit` calls; None for anything else.

    Calls that mean something of their own (custom derivatives, remat, cond, a `jit` with shardings) are not plain.
    """
    if eqn.primitive is p.closed_call_p:
        return eqn.params["call_jaxpr"]
    if eqn.primitive is not p.jit_p:
        return None
    shardings = [*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ())]
    unspecified = all(type(sharding).__name__ == "UnspecifiedValue" for sharding in shardings)
    return eqn.params["jaxpr"] if unspecified else None


def call_around_scan(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a call with a `scan` inside calls (jit, remat, a custom derivative); None for control flow and the rest."""
    if eqn.primitive in (p.scan_p, p.while_p, p.cond_p):
        return None
    for value in eqn.params.values():
        if isinstance(value, core.Jaxpr):
            value = core.ClosedJaxpr(value, ())
        if not isinstance(value, core.ClosedJaxpr):
            continue
        fits = len(value.jaxpr.invars) == len(eqn.invars) and len(value.jaxpr.outvars) == len(eqn.outvars)
        if fits and any(each.primitive is p.scan_p for each in equations(value.jaxpr)):
            return value
    return None


def open_calls(
    rule: Rule = decline, called: Callable[[core.JaxprEqn], core.ClosedJaxpr | None] = plain_call
) -> Rule:
    """A rule that asks `rule`, and steps into the calls that it declines and `called` knows.

    >>> import jax
    >>> jitted = jax.make_jaxpr(jax.jit(lambda x: 2 * x))(1.0).jaxpr
    >>> jax.make_jaxpr(lambda x: interpret(jitted, [x], open_calls()))(1.0).jaxpr.eqns[0].primitive.name
    'mul'
    """

    def opening(eqn: core.JaxprEqn, inputs: list[Any]) -> Sequence[Any] | None:
        outputs = rule(eqn, inputs)
        if outputs is not None or (inner := called(eqn)) is None:
            return outputs
        with _opened(eqn):
            return interpret(inner.jaxpr, [*inner.consts, *inputs], opening)

    return opening
