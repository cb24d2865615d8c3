"""One step of a loop, split into its values and its derivative.

The derivative of a step is a linear program in the tangents, whose coefficients are computed from the step's values
(`jax.linearize` gives both). Here they are two jaxprs: `values`, which also returns the coefficients, and `linear`, the
linear program.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, open_calls


@dataclasses.dataclass(frozen=True)
class Linearized:
    """`values` maps (closed-over constants, consts, carry, x) to (carry, y, coefficients)."""

    values: core.Jaxpr
    closed_over: list
    linear: core.Jaxpr
    """Inputs: coefficients, then tangents of the active constants, carries and xs. Outputs: of the active outputs."""
    num_coefficients: int
    active_in: list[int]
    active_out: list[int]


def active_inputs(loop: Loop, active: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Which inputs have a tangent, after enough steps, and which outputs then have one."""
    start = loop.num_consts
    moving = list(active)
    while True:
        reached = _active_outputs(loop.jaxpr, moving)
        grown = list(moving)
        for i, out in enumerate(reached[: loop.num_carry]):
            grown[start + i] = moving[start + i] or out
        if grown == moving:
            break
        moving = grown
    # A carry that has a tangent when the loop starts has one when it ends, whatever a step does with it.
    outputs = [i for i, out in enumerate(reached) if out or (i < loop.num_carry and moving[start + i])]
    return [i for i, on in enumerate(moving) if on], outputs


def _active_outputs(jaxpr: core.Jaxpr, active: Sequence[bool]) -> list[bool]:
    """Which outputs of a program have a tangent when these inputs have one."""
    reached = {v for v, on in zip(jaxpr.invars, active, strict=True) if on}
    for eqn in jaxpr.eqns:
        into = [isinstance(atom, core.Var) and atom in reached for atom in eqn.invars]
        if any(into) and eqn.primitive is not p.stop_gradient_p:
            outputs = zip(eqn.outvars, _active_results(eqn, into), strict=True)
            reached.update(v for v, on in outputs if on and jnp.issubdtype(jaxprs.dtype(v), jnp.inexact))
    return [isinstance(out, core.Var) and out in reached for out in jaxpr.outvars]


def _active_results(eqn: core.JaxprEqn, active: list[bool]) -> list[bool]:
    """The same for an equation. As in jax, what passes a loop or a call beside a tangent gets none from it."""
    if eqn.primitive is p.scan_p:
        loop, closed_over = jaxprs.loop_of(eqn)
        found = active_inputs(loop, [*(False for _ in closed_over), *active])[1]
        return [i in found for i in range(len(eqn.outvars))]
    if (called := jaxprs.plain_call(eqn)) is not None:
        return _active_outputs(called.jaxpr, active)
    return [True] * len(eqn.outvars)


def linearized(loop: Loop, active: tuple[bool, ...]) -> Linearized:
    active_in, active_out = active_inputs(loop, active)
    passive_out = [i for i in range(len(loop.jaxpr.outvars)) if i not in active_out]
    found: list[core.Jaxpr] = []

    def with_coefficients(*inputs):
        def step(*moving):
            full = list(inputs)
            for i, value in zip(active_in, moving, strict=True):
                full[i] = value
            out = interpret(loop.jaxpr, full)
            return [out[i] for i in active_out], [out[i] for i in passive_out]

        moving = [inputs[i] for i in active_in]
        active_values, derivative, passive_values = jax.linearize(step, *moving, has_aux=True)
        linear, coefficients = _linear_program(derivative, [jax.typeof(v) for v in moving])
        found.append(linear)
        out = dict(zip(active_out, active_values, strict=True))
        out |= dict(zip(passive_out, passive_values, strict=True))
        return [*(out[i] for i in range(len(out))), *coefficients]

    values, closed_over = jaxprs.trace(with_coefficients, [v.aval for v in loop.jaxpr.invars])
    linear = found[-1]
    return Linearized(values, closed_over, linear, len(linear.invars) - len(active_in), active_in, active_out)


def _linear_program(derivative, avals) -> tuple[core.Jaxpr, list]:
    """The derivative as a jaxpr of linear equations only, and its coefficients.

    What it computes from coefficients alone is computed here and becomes a coefficient.
    """
    closed = jax.make_jaxpr(derivative)(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals])
    tangents = len(closed.jaxpr.invars)
    raw = jaxprs.without_constvars(closed.jaxpr)
    flat, more = jaxprs.trace(
        lambda *values: interpret(raw, values, open_calls()), [v.aval for v in raw.invars]
    )
    coefficients = [*more, *closed.consts]
    split = len(flat.invars) - tangents
    linear_vars = jaxprs.depends_on(flat.eqns, flat.invars[split:])
    linear = [eqn for eqn in flat.eqns if not linear_vars.isdisjoint(eqn.outvars)]
    fixed = [eqn for eqn in flat.eqns if linear_vars.isdisjoint(eqn.outvars)]
    wanted = [v for v in jaxprs.reads(linear, flat.outvars) if v not in linear_vars]
    values = interpret(jaxprs.part(flat, fixed, flat.invars[:split], wanted), coefficients)
    return jaxprs.part(flat, linear, [*wanted, *flat.invars[split:]], flat.outvars), values
