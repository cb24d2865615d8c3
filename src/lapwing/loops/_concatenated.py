"""The pass for `[x, h] @ W`: the product of a concatenation becomes a sum of products, so that x's can leave the loop.

A product that sums over the axis along which its operand was concatenated is a sum over the parts:
`[x, h] @ W` is `x @ W[:n] + h @ W[n:]`. The first term depends on x and constants alone, so the hoist pass runs it for
all steps at once, and only the second stays. Cells written for other frameworks, and Haiku's, have this form.
"""

import dataclasses
import itertools
from typing import Any

from jax import lax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, source_of
from lapwing.loops._bound import BoundLoop, Rewritten
from lapwing.loops._costs import Costs
from lapwing.loops._hoist import batch_vars, constant_vars


@dataclasses.dataclass(frozen=True)
class ConcatenatedProduct:
    """A product of a concatenation with a constant, which sums over the axis of the concatenation."""

    eqn: core.JaxprEqn
    side: int
    """Which operand is the concatenation."""
    parts: core.JaxprEqn
    """The concatenation."""
    known: list[bool]
    """For each of its parts, whether it is known before the loop."""

    @property
    def axes(self) -> tuple[int, int]:
        """The axis that is summed over: of the concatenation and of the constant."""
        (contracted, _), axis = self.eqn.params["dimension_numbers"], self.parts.params["dimension"]
        place = contracted[self.side].index(axis)
        return axis, contracted[1 - self.side][place]

    def terms(self, values: list[Any], constant: Any) -> list[Any]:
        """The product with each run of neighbours that are known, or are not."""
        axis, of_constant = self.axes
        runs = itertools.groupby(range(len(values)), lambda i: self.known[i])
        terms, start = [], 0
        for _, run in runs:
            parts = [values[i] for i in run]
            value = parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)
            width = value.shape[axis]
            weight = lax.slice_in_dim(constant, start, start + width, axis=of_constant)
            operands = (value, weight) if self.side == 0 else (weight, value)
            terms.append(lax.dot_general(*operands, **_settings(self.eqn)))
            start += width
        return terms

    def known_terms(self) -> list[core.JaxprEqn]:
        """The products that can leave the loop, as equations."""
        avals = [atom.aval for atom in (*self.parts.invars, self.eqn.invars[1 - self.side])]

        def terms(*values: Any) -> list[Any]:
            with source_of(self.eqn):
                return self.terms(list(values[:-1]), values[-1])

        jaxpr, _ = jaxprs.trace(terms, avals)
        products = [eqn for eqn in jaxpr.eqns if eqn.primitive is p.dot_general_p]
        known = [known for known, _ in itertools.groupby(self.known)]
        return [eqn for eqn, leaves in zip(products, known, strict=True) if leaves]


def concatenated_products(loop: Loop) -> list[ConcatenatedProduct]:
    """The products of a step that are partly known before the loop."""
    constant = constant_vars(loop)
    before = constant | batch_vars(loop, constant)
    made_by = {var: eqn for eqn in loop.eqns for var in eqn.outvars}
    found = []
    for eqn in loop.eqns:
        if eqn.primitive is not p.dot_general_p:
            continue
        for side, atom in enumerate(eqn.invars):
            parts = made_by.get(atom) if isinstance(atom, core.Var) else None
            weight = eqn.invars[1 - side]
            contracted, _ = eqn.params["dimension_numbers"]
            if parts is None or parts.primitive is not p.concatenate_p or weight not in constant:
                continue
            known = [isinstance(each, core.Literal) or each in before for each in parts.invars]
            if parts.params["dimension"] in contracted[side] and any(known) and not all(known):
                found.append(ConcatenatedProduct(eqn, side, parts, known))
    return found


def split_concatenated(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Products of concatenations are split where the part that is known before the loop is worth hoisting."""
    taken: dict[int, ConcatenatedProduct] = {}
    decisions = []
    for product in concatenated_products(bound.loop):
        hoists = [costs.hoists(eqn, bound.loop.length, 1 - product.side) for eqn in product.known_terms()]
        if all(hoists):
            taken[id(product.eqn)] = product
        else:  # the hoist pass decides about those that were split
            decisions += hoists
    return Rewritten(_split(bound, taken) if taken else bound, decisions=tuple(decisions))


def _split(bound: BoundLoop, products: dict[int, ConcatenatedProduct]) -> BoundLoop:
    loop = bound.loop

    def step(*values: Any) -> list[Any]:
        parts: dict[int, list[Any]] = {}

        def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
            if eqn.primitive is p.concatenate_p:
                parts[id(eqn)] = inputs
            if (product := products.get(id(eqn))) is None:
                return None
            with source_of(eqn):
                terms = product.terms(parts[id(product.parts)], inputs[1 - product.side])
                return [sum(terms[1:], terms[0])]

        return interpret(loop.jaxpr, values, rule)

    jaxpr, closed_over = jaxprs.trace(step, [var.aval for var in loop.jaxpr.invars])
    slim = jaxprs.part(jaxpr, jaxpr.eqns, jaxpr.invars, jaxpr.outvars)
    loop = dataclasses.replace(loop, jaxpr=slim, num_consts=loop.num_consts + len(closed_over))
    return BoundLoop(loop, [*closed_over, *bound.consts], bound.init, bound.xs)


def _settings(eqn: core.JaxprEqn) -> dict[str, Any]:
    return {name: eqn.params[name] for name in ("dimension_numbers", "precision", "preferred_element_type")}
