"""The accumulator pass: a carry that only sums products becomes one product after the loop.

This is how the gradient of somebody else's loop looks: `dW = dW + h.T @ g` in every step. Such a carry is dropped; the
loop returns h and g instead, and one product over time and batch gives the sum. (A loop that was rewritten before it
was differentiated never has such carries: see `_split`.)
"""

import dataclasses
from typing import Any

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, source_of
from lapwing.loops._bound import BoundLoop, Rewritten
from lapwing.loops._costs import Costs, summed
from lapwing.loops._decisions import Decision
from lapwing.loops._over_time import sum_of_products
from lapwing.loops._split import PUSHABLE


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """Every step adds to carry[index] the result of `product`, passed through `chain`."""

    index: int
    product: core.JaxprEqn
    chain: list[core.JaxprEqn]

    @property
    def operands(self) -> list[core.Var]:
        return jaxprs.variables(self.product.invars)


def accumulators(loop: Loop, costs: Costs) -> tuple[list[Accumulator], list[Decision]]:
    """The accumulators that are worth dropping, and the decisions about all."""
    maker = {v: eqn for eqn in loop.eqns for v in eqn.outvars}
    uses = loop.uses()
    found, decisions = [], []
    for index, (carry, out) in enumerate(zip(loop.carry, loop.carry_out, strict=True)):
        if not isinstance(out, core.Var) or out not in maker:
            continue
        addition = maker[out]
        if addition.primitive not in (p.add_p, p.add_jaxvals_p):
            continue
        terms = [atom for atom in addition.invars if atom is not carry]
        if len(terms) != 1 or uses[carry] != 1 or uses[out] != 1 or not isinstance(terms[0], core.Var):
            continue
        chain, eqn = [], maker.get(terms[0])
        while eqn is not None and eqn.primitive in PUSHABLE and isinstance(eqn.invars[0], core.Var):
            chain.insert(0, eqn)
            eqn = maker.get(eqn.invars[0])
        if eqn is None or eqn.primitive is not p.dot_general_p:
            continue
        accumulator = Accumulator(index, eqn, chain)
        there = sum(jaxprs.nbytes(v) for v in accumulator.operands if v in loop.xs)
        stack = sum(map(jaxprs.nbytes, accumulator.operands)) - there
        decisions.append(costs.defers(eqn, loop.length, eqn.outvars[0], summed(eqn), there, stack))
        if decisions[-1] and len(set(accumulator.operands) - set(loop.consts)) == 2:
            found.append(accumulator)
    return found, decisions


def drop_accumulators(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Carries that only sum products are dropped; the operands of the products become outputs of the loop."""
    loop, init = bound.loop, bound.init
    found, decisions = accumulators(loop, costs)
    if not found:
        return Rewritten(bound, decisions=tuple(decisions))
    dropped = {accumulator.index for accumulator in found}
    staying = [i for i in range(loop.num_carry) if i not in dropped]
    carry, carry_out = loop.carry, loop.carry_out
    operands = list(dict.fromkeys(v for accumulator in found for v in accumulator.operands))
    inputs = [*loop.consts, *(carry[i] for i in staying), *loop.xs]
    jaxpr = jaxprs.part(
        loop.jaxpr, loop.eqns, inputs, [*(carry_out[i] for i in staying), *loop.ys, *operands]
    )
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_carry=len(staying))

    def undo(out: list[Any]) -> list[Any]:
        ys = out[len(staying) : len(out) - len(operands)]
        stacked = dict(zip(operands, out[len(out) - len(operands) :], strict=True))
        values = dict(zip(staying, out[: len(staying)], strict=True))
        for accumulator in found:
            values[accumulator.index] = init[accumulator.index] + _sum(loop, accumulator, stacked)
        return [*(values[i] for i in range(loop.num_carry)), *ys]

    left = BoundLoop(slim, bound.consts, [init[i] for i in staying], bound.xs)
    return Rewritten(left, undo, tuple(decisions))


def _sum(loop: Loop, accumulator: Accumulator, stacked: dict) -> Any:
    """The products of all steps as one, then the chain, which is linear."""
    with source_of(accumulator.product):
        total = sum_of_products(accumulator.product, *(stacked[v] for v in accumulator.operands))
    if not accumulator.chain:
        return total
    inputs, outputs = accumulator.product.outvars, accumulator.chain[-1].outvars
    (total,) = interpret(jaxprs.part(loop.jaxpr, accumulator.chain, inputs, outputs), [total])
    return total
