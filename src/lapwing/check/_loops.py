"""The loops of a traced function, and a way to run it with other loops in their place.

Calls around a loop (jit, remat, a custom derivative) are opened; everything else runs as it was. Counts of constants
and carries are read off the shapes, since jax 0.10 and 0.11 write them down in different ways.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core

from ._jaxprs import equations, place_of

ScanStep = Callable[[list[Any], Any], Any]
OnScan = Callable[[ScanStep, list[Any], list[Any], dict[str, Any]], tuple[Any, Any]]


class Loop(NamedTuple):
    """A scan: its place in the source, its carry and its length."""

    place: str
    carry: list[Any]
    length: int
    reverse: bool

    def zeros(self) -> list[Any]:
        """A zero for each carried number at each step; None for what is not floating-point."""
        return [
            jnp.zeros((self.length, *each.shape), each.dtype)
            if jnp.issubdtype(each.dtype, jnp.floating)
            else None
            for each in self.carry
        ]


def loops_in(jaxpr: core.Jaxpr) -> list[Loop]:
    """The loops that `run_with_scans` meets, in the same order; loops inside loops are left out."""
    return [_loop(eqn) for eqn in _scans(jaxpr)]


def run_with_scans(jaxpr: core.Jaxpr, values: list[Any], on_scan: OnScan) -> list[Any]:
    """Runs a jaxpr on its constants and inputs; each scan is run by `on_scan(step, carry, xs, settings)`."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        inner = _opened(eqn)
        if eqn.primitive.name == "scan":
            outputs = _run_scan(eqn, inputs, on_scan)
        elif inner is not None:
            outputs = run_with_scans(inner.jaxpr, [*inner.consts, *inputs], on_scan)
        else:
            result = eqn.primitive.bind(*inputs, **eqn.primitive.get_bind_params(eqn.params))
            outputs = result if eqn.primitive.multiple_results else [result]
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _scans(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    for eqn in jaxpr.eqns:
        inner = _opened(eqn)
        if eqn.primitive.name == "scan":
            yield eqn
        elif inner is not None:
            yield from _scans(inner.jaxpr)


def _opened(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a call around a loop calls; None for anything else."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    for value in eqn.params.values():
        if isinstance(value, core.Jaxpr):
            value = core.ClosedJaxpr(value, ())
        if not isinstance(value, core.ClosedJaxpr):
            continue
        fits = len(value.jaxpr.invars) == len(eqn.invars) and len(value.jaxpr.outvars) == len(eqn.outvars)
        if fits and any(each.primitive.name == "scan" for each in equations(value.jaxpr)):
            return value
    return None


def _counts(eqn: core.JaxprEqn) -> tuple[int, int]:
    """How many constants and how many carries a scan has."""
    body: Any = eqn.params["jaxpr"].jaxpr

    def same(outer: Any, inner: Any) -> bool:
        return outer.aval.shape == inner.aval.shape

    carries = sum(same(*pair) for pair in zip(eqn.outvars, body.outvars, strict=True))
    unsliced = sum(same(*pair) for pair in zip(eqn.invars, body.invars, strict=True))
    return unsliced - carries, carries


def _loop(eqn: core.JaxprEqn) -> Loop:
    consts, carries = _counts(eqn)
    carry = [var.aval for var in eqn.params["jaxpr"].jaxpr.invars[consts : consts + carries]]
    return Loop(place_of(eqn), carry, eqn.params["length"], eqn.params["reverse"])


def _run_scan(eqn: core.JaxprEqn, inputs: list[Any], on_scan: OnScan) -> list[Any]:
    body = eqn.params["jaxpr"]
    consts, carries = _counts(eqn)

    def step(carry: list[Any], x: Any) -> Any:
        out = jax.core.eval_jaxpr(body.jaxpr, body.consts, *inputs[:consts], *carry, *x)
        return out[:carries], out[carries:]

    settings = {"length": eqn.params["length"], "reverse": eqn.params["reverse"]}
    carry, ys = on_scan(step, inputs[consts : consts + carries], inputs[consts + carries :], settings)
    return [*carry, *ys]
