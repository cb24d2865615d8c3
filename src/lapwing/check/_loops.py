"""The scans of a traced function, and a way to run it with other scans instead.

Calls around a scan (jit, remat, a custom derivative) are opened; everything else runs as it is.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, call_around_scan, interpret, loop_of, open_calls

ScanStep = Callable[[Any, Any], Any]
OnScan = Callable[[Loop, ScanStep, Any, Any], tuple[Any, Any]]


def loops_in(jaxpr: core.Jaxpr) -> list[tuple[str, Loop]]:
    """Source line and loop of each scan that `run_with_scans` meets, in the same order."""
    return [
        (jaxprs.file_and_line(eqn), loop_of(eqn)[0]) for eqn in jaxprs.scans(jaxpr, called=call_around_scan)
    ]


def zeros_for(loop: Loop) -> list[Any]:
    """A zero for each carried number at each step; None for what is not floating-point."""
    stacks = [loop.stacked(var) for var in loop.carry]
    return [
        jnp.zeros(stack.shape, stack.dtype) if jnp.issubdtype(stack.dtype, jnp.floating) else None
        for stack in stacks
    ]


def run_with_scans(closed: core.ClosedJaxpr, values: jaxprs.Values, on_scan: OnScan) -> list[Any]:
    """Run a program; each scan is run by `on_scan(loop, step, carry, xs)`. Scans inside scans are left alone."""

    def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
        if eqn.primitive is not p.scan_p:
            return None
        loop, closed_over = loop_of(eqn)
        consts, carry, xs = loop.split_inputs([*closed_over, *inputs])
        carry, ys = on_scan(loop, loop.step(consts), carry, xs)
        return [*carry, *ys]

    return interpret(closed.jaxpr, [*closed.consts, *values], open_calls(rule, call_around_scan))
