"""The merge pass: sibling products become one. `h@U, h@V` with constant U and V is `h@[U|V]`, split afterwards.

One large product is faster than several small ones, forward and, since the derivative is taken of the merged
program, backward as well. The weights are concatenated once, outside the loop.
"""

import dataclasses
import math
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Env, Loop, interpret, source_of
from lapwing.loops._bound import BoundLoop, Rewritten
from lapwing.loops._costs import Costs


@dataclasses.dataclass(frozen=True)
class WeightProduct:
    """A product of a value of the step with a constant weight, and which operand is the weight."""

    eqn: core.JaxprEqn
    weight_side: int

    @property
    def step(self) -> core.Var:
        return jaxprs.variables(self.eqn.invars)[1 - self.weight_side]

    @property
    def weight(self) -> core.Var:
        return jaxprs.variables(self.eqn.invars)[self.weight_side]

    @property
    def contracted(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Contracted axes of the step operand and of the weight."""
        contract, _ = self.eqn.params["dimension_numbers"]
        return contract[1 - self.weight_side], contract[self.weight_side]

    @property
    def free_shape(self) -> tuple[int, ...]:
        """The weight's axes that stay."""
        shape, (_, contracted) = jaxprs.shape(self.weight), self.contracted
        return tuple(n for axis, n in enumerate(shape) if axis not in contracted)


def constant_product(eqn: core.JaxprEqn, constant: set[core.Var]) -> WeightProduct | None:
    if eqn.primitive is not p.dot_general_p:
        return None
    _, batch_axes = eqn.params["dimension_numbers"]
    is_constant = [isinstance(atom, core.Var) and atom in constant for atom in eqn.invars]
    if sum(is_constant) != 1 or any(batch_axes) or any(isinstance(atom, core.Literal) for atom in eqn.invars):
        return None
    return WeightProduct(eqn, is_constant.index(True))


def siblings(loop: Loop) -> list[list[WeightProduct]]:
    """Groups of at least two products that share their step operand and can be done as one."""
    constant = set(loop.consts)
    groups = defaultdict(list)
    for eqn in loop.eqns:
        product = constant_product(eqn, constant)
        if product is not None:
            settings = tuple(str(v) for k, v in sorted(eqn.params.items()) if k != "dimension_numbers")
            dtypes = (jaxprs.dtype(product.weight), jaxprs.dtype(eqn.outvars[0]))
            key = (product.step, product.weight_side, product.contracted[0], *dtypes, settings)
            groups[key].append(product)
    return [group for group in groups.values() if len(group) > 1]


def merge(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Products that share an operand become one product with their weights concatenated."""
    groups = siblings(bound.loop)
    decisions = [costs.merges([product.eqn for product in group], bound.loop.length) for group in groups]
    taken = [group for group, decision in zip(groups, decisions, strict=True) if decision]
    return Rewritten(_merged(bound, taken) if taken else bound, decisions=tuple(decisions))


def _merged(bound: BoundLoop, groups: list[list[WeightProduct]]) -> BoundLoop:
    """The loop with each group as one product. The concatenated weights come before its other constants."""
    loop = bound.loop
    weights = dict(zip(loop.consts, bound.consts, strict=True))
    together = [jnp.concatenate([_as_matrix(product, weights) for product in group], -1) for group in groups]
    group_of = {id(product.eqn): n for n, group in enumerate(groups) for product in group}

    def step(*values):
        wide, inputs = values[: len(together)], values[len(together) :]
        done: Env = {}

        def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
            if (n := group_of.get(id(eqn))) is None:
                return None
            if eqn.outvars[0] not in done:
                done.update(_one_product(groups[n], inputs[1 - groups[n][0].weight_side], wide[n]))
            return [done[eqn.outvars[0]]]

        return interpret(loop.jaxpr, inputs, rule)

    avals = [jax.typeof(value) for value in together] + [var.aval for var in loop.jaxpr.invars]
    jaxpr, closed_over = jaxprs.trace(step, avals)
    num_consts = loop.num_consts + len(together) + len(closed_over)
    loop = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=num_consts)
    return BoundLoop(loop, [*closed_over, *together, *bound.consts], bound.init, bound.xs)


def _as_matrix(product: WeightProduct, weights: Env) -> Any:
    """The weight with its contracted axes in front and the others flattened into the last one."""
    _, contracted = product.contracted
    weight = jnp.moveaxis(weights[product.weight], contracted, range(len(contracted)))
    return weight.reshape(*weight.shape[: len(contracted)], math.prod(product.free_shape))


def _one_product(group: list[WeightProduct], value: Any, wide: Any) -> Env:
    first = group[0]
    step_axes, _ = first.contracted
    wide_axes = tuple(range(len(step_axes)))
    settings = {k: v for k, v in first.eqn.params.items() if k in ("precision", "preferred_element_type")}
    with source_of(first.eqn):
        if first.weight_side == 1:
            out = lax.dot_general(value, wide, ((step_axes, wide_axes), ((), ())), **settings)
        else:
            out = lax.dot_general(wide, value, ((wide_axes, step_axes), ((), ())), **settings)
    axis = out.ndim - 1 if first.weight_side == 1 else 0
    pieces = lax.split(out, [math.prod(product.free_shape) for product in group], axis=axis)
    return {
        product.eqn.outvars[0]: piece.reshape(jaxprs.shape(product.eqn.outvars[0]))
        for product, piece in zip(group, pieces, strict=True)
    }
