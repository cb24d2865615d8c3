"""One step of a loop, split into its values and its derivative.

The derivative of a step is a linear program in the tangents, whose coefficients are computed from the step's values
(`jax.linearize` gives both). Here they are two jaxprs: `values`, which also returns the coefficients, and `linear`, the
linear program.
"""

import dataclasses

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


def active_inputs(loop: Loop, active: tuple[bool, ...]) -> tuple[list[int], list[int]]:
    """Which inputs have a tangent, after enough steps, and which outputs then have one."""
    start = loop.num_consts
    moving = list(active)
    while True:
        reached = _differentiably_reached(
            loop, [v for v, on in zip(loop.jaxpr.invars, moving, strict=True) if on]
        )
        grown = list(moving)
        for i, out in enumerate(loop.carry_out):
            grown[start + i] = moving[start + i] or (isinstance(out, core.Var) and out in reached)
        if grown == moving:
            break
        moving = grown
    # A carry that has a tangent when the loop starts has one when it ends, whatever a step does with it.
    outputs = [
        i
        for i, out in enumerate(loop.jaxpr.outvars)
        if (isinstance(out, core.Var) and out in reached) or (i < loop.num_carry and moving[start + i])
    ]
    return [i for i, on in enumerate(moving) if on], outputs


def _differentiably_reached(loop: Loop, sources: list[core.Var]) -> set[core.Var]:
    reached = set(sources)
    for eqn in loop.eqns:
        if eqn.primitive is not p.stop_gradient_p and not reached.isdisjoint(jaxprs.variables(eqn.invars)):
            reached.update(v for v in eqn.outvars if jnp.issubdtype(jaxprs.dtype(v), jnp.inexact))
    return reached


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
