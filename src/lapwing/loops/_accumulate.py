"""Carries that only add up need not be carried: a sum over the steps of products is one product.

This is how the gradient of somebody else's loop looks: `dW = dW + h.T @ g` in every step. Such a carry is dropped; the
loop hands out h and g instead, and one product over time and batch makes the sum. (A loop that was rewritten before
it was differentiated never has such carries: see `_split`.)
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.loops import _jaxprs as jaxprs
from lapwing.loops._costs import Costs
from lapwing.loops._loop import Loop, Values, in_place_of
from lapwing.loops._over_time import sum_of_products
from lapwing.loops._split import PUSHABLE


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """carry[index] grows, in every step, by `chain` applied to the result of `product`."""

    index: int
    product: core.JaxprEqn
    chain: list[core.JaxprEqn]

    @property
    def operands(self) -> list[core.Var]:
        return jaxprs.variables(self.product.invars)


def accumulators(loop: Loop, costs: Costs) -> list[Accumulator]:
    maker = {v: eqn for eqn in loop.eqns for v in eqn.outvars}
    uses = loop.uses()
    found = []
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
        if eqn is not None and eqn.primitive is p.dot_general_p and costs.defers(eqn, loop.length):
            accumulator = Accumulator(index, eqn, chain)
            if len(set(accumulator.operands) - set(loop.consts)) == 2:
                found.append(accumulator)
    return found


def without_accumulators(
    loop: Loop, init: Values, costs: Costs
) -> tuple[Loop, Values, Callable[[list[Any]], list[Any]]]:
    """The loop with such carries dropped and the operands of their products handed out; and how to add them up."""
    found = accumulators(loop, costs)
    if not found:
        return loop, init, lambda out: out
    dropped = {accumulator.index for accumulator in found}
    staying = [i for i in range(loop.num_carry) if i not in dropped]
    carry, carry_out = loop.carry, loop.carry_out
    operands = list(dict.fromkeys(v for accumulator in found for v in accumulator.operands))
    inputs = [*loop.consts, *(carry[i] for i in staying), *loop.xs]
    jaxpr = jaxprs.part(
        loop.jaxpr, loop.eqns, inputs, [*(carry_out[i] for i in staying), *loop.ys, *operands]
    )
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_carry=len(staying))

    def add_up(out: list[Any]) -> list[Any]:
        ys = out[len(staying) : len(out) - len(operands)]
        stacked = dict(zip(operands, out[len(out) - len(operands) :], strict=True))
        values = dict(zip(staying, out[: len(staying)], strict=True))
        for accumulator in found:
            values[accumulator.index] = init[accumulator.index] + _sum(loop, accumulator, stacked)
        return [*(values[i] for i in range(loop.num_carry)), *ys]

    return slim, [init[i] for i in staying], add_up


def _sum(loop: Loop, accumulator: Accumulator, stacked: dict) -> Any:
    """The products of all steps as one, then the chain, which is linear."""
    with in_place_of(accumulator.product):
        total = sum_of_products(accumulator.product, *(stacked[v] for v in accumulator.operands))
    if not accumulator.chain:
        return total
    inputs, outputs = accumulator.product.outvars, accumulator.chain[-1].outvars
    (total,) = jaxprs.run(jaxprs.part(loop.jaxpr, accumulator.chain, inputs, outputs), total)
    return total
