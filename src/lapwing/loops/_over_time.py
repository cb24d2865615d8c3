"""Equations run for all steps at once: values with time in front go in and come out.

Each is mapped over time by `jax.vmap`, except a product with a constant: there time and the operand's other axes
become one, so that the product, and the gradient of the constant, are plain products of two matrices. (Left with two
axes to contract, XLA copies a whole stack to bring them together: up to 1.6 times slower on a CPU.)
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.loops._loop import bind, in_place_of

Env = dict[core.Var, Any]


def run_over_time(eqns: Sequence[core.JaxprEqn], known: Env, stacked: Env) -> tuple[Env, Env]:
    """All results of `eqns`: those that are the same in every step, and those that are stacked over time."""
    known, stacked = dict(known), dict(stacked)
    for eqn in eqns:
        inputs = [a.val if isinstance(a, core.Literal) else stacked.get(a, known.get(a)) for a in eqn.invars]
        has_time = [isinstance(a, core.Var) and a in stacked for a in eqn.invars]
        target = stacked if any(has_time) else known
        target.update(zip(eqn.outvars, bind_over_time(eqn, inputs, has_time), strict=True))
    return known, stacked


def bind_over_time(eqn: core.JaxprEqn, inputs: Sequence[Any], has_time: Sequence[bool]) -> list[Any]:
    if not any(has_time):
        return bind(eqn, inputs)
    if (
        eqn.primitive is p.dot_general_p
        and sum(has_time) == 1
        and not any(eqn.params["dimension_numbers"][1])
    ):
        with in_place_of(eqn):
            return [_product(eqn, inputs, has_time.index(True))]
    return jax.vmap(lambda *values: bind(eqn, values), in_axes=[0 if time else None for time in has_time])(
        *inputs
    )


def _product(eqn: core.JaxprEqn, inputs: Sequence[Any], side: int) -> Any:
    """The product of the stacked operand, on the given side, with the constant one, as matrices."""
    stack, constant = inputs[side], inputs[1 - side]
    contracted = eqn.params["dimension_numbers"][0]
    of_stack = [axis + 1 for axis in contracted[side]]
    of_constant = list(contracted[1 - side])
    rest = [axis for axis in range(stack.ndim) if axis not in of_stack]
    left = [axis for axis in range(constant.ndim) if axis not in of_constant]
    summed = math.prod(stack.shape[axis] for axis in of_stack)
    rows = jnp.transpose(stack, [*rest, *of_stack]).reshape(-1, summed)
    columns = jnp.transpose(constant, [*of_constant, *left]).reshape(summed, -1)
    settings = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}
    flat = lax.dot_general(rows, columns, (((1,), (0,)), ((), ())), **settings)
    out = flat.reshape(*(stack.shape[axis] for axis in rest), *(constant.shape[axis] for axis in left))
    # A constant on the left has its axes first, behind time.
    return out if side == 0 else jnp.moveaxis(out, range(len(rest), out.ndim), range(1, 1 + len(left)))


def sum_of_products(eqn: core.JaxprEqn, left: Any, right: Any) -> Any:
    """The product of two stacks, summed over time: time is one more axis to contract."""
    (of_left, of_right), (batch_left, batch_right) = eqn.params["dimension_numbers"]
    settings = {name: eqn.params[name] for name in ("precision", "preferred_element_type")}

    def later(axes: Sequence[int]) -> list[int]:
        return [axis + 1 for axis in axes]

    if not batch_left:
        left = _contracted_in_front(left, [0, *later(of_left)])
        right = _contracted_in_front(right, [0, *later(of_right)])
        return lax.dot_general(left, right, (((0,), (0,)), ((), ())), **settings)
    contract = ([0, *later(of_left)], [0, *later(of_right)])
    return lax.dot_general(left, right, (contract, (later(batch_left), later(batch_right))), **settings)


def _contracted_in_front(stack: Any, axes: list[int]) -> Any:
    """The stack with these axes as one, in front."""
    rest = [axis for axis in range(stack.ndim) if axis not in axes]
    moved = jnp.transpose(stack, [*axes, *rest])
    return moved.reshape(-1, *(stack.shape[axis] for axis in rest))
