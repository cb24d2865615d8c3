"""Every matrix product of a gradient program: where it runs, how often, and its role.

The program is a jaxpr of (arguments, cotangents) -> gradients. What depends on the cotangents is the backward pass; a
loop that does is a backward loop. A product in a backward loop that does not depend on them is recomputed.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs import _read as jaxprs
from lapwing.jaxprs._loop import scan_counts

Role = Literal["value", "gradient of the operand", "gradient of the weight", "computed again"]
Place = Literal["forward loop", "backward loop", "once"]


@dataclasses.dataclass(frozen=True)
class Product:
    """One matrix product of the program, and how often it runs."""

    site: str
    role: Role
    place: Place
    times: int
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    flops: int
    bytes: int
    inside: str | None
    """The call that contains it (cond, custom_vjp_call, …) and is not opened, if any."""

    @property
    def loops(self) -> bool:
        return self.place != "once"


@dataclasses.dataclass(frozen=True)
class _Where:
    place: Place
    times: int
    inside: str | None
    changing: frozenset[core.Var]
    """In a loop, what differs from step to step."""


def inventory(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[Product]:
    """All products of a gradient program whose `cotangents` are these inputs.

    >>> import jax, jax.numpy as jnp
    >>> gradient = lambda w, g: jax.vjp(lambda w: jnp.ones(2) @ w, w)[1](g)
    >>> jaxpr = jax.make_jaxpr(gradient)(jnp.eye(2), jnp.ones(2)).jaxpr
    >>> [(product.role, product.times) for product in inventory(jaxpr, jaxpr.invars[1:])]
    [('value', 1), ('gradient of the operand', 1)]
    """
    return _products(jaxpr, set(cotangents), _Where("once", 1, None, frozenset()))


SEEN_THROUGH = {p.jit_p, p.closed_call_p, p.remat_p, p.custom_jvp_call_p}


def _products(jaxpr: core.Jaxpr, backward: set[core.Var], where: _Where) -> list[Product]:
    """`backward`: the inputs that depend on the cotangents."""
    backward = jaxprs.depends_on(jaxpr.eqns, backward)
    changing = jaxprs.depends_on(jaxpr.eqns, where.changing)
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive in jaxprs.PRODUCTS:
            found.append(_product(eqn, backward, changing, where))
        elif eqn.primitive is p.scan_p:
            found += _in_scan(eqn, backward, where)
        else:
            for inner in jaxprs.inner_jaxprs(eqn):
                hidden = where.inside if eqn.primitive in SEEN_THROUGH else eqn.primitive.name
                inputs = list(zip(inner.invars[::-1], eqn.invars[::-1], strict=False))
                there = dataclasses.replace(
                    where, inside=hidden, changing=frozenset(_members(changing, inputs))
                )
                found += _products(inner, _members(backward, inputs), there)
    return found


def _members(group: set[core.Var], inputs: list[tuple[core.Var, jaxprs.Atom]]) -> set[core.Var]:
    return {inner for inner, outer in inputs if isinstance(outer, core.Var) and outer in group}


def _in_scan(eqn: core.JaxprEqn, backward: set[core.Var], where: _Where) -> list[Product]:
    inner = eqn.params["jaxpr"].jaxpr
    num_consts, num_carry = scan_counts(eqn.params)
    flagged = _members(backward, list(zip(inner.invars, eqn.invars, strict=True)))
    carries = inner.invars[num_consts : num_consts + num_carry]
    while True:
        reached = jaxprs.depends_on(inner.eqns, flagged)
        more = {
            into
            for into, out in zip(carries, inner.outvars[:num_carry], strict=True)
            if isinstance(out, core.Var) and out in reached
        }
        if more <= flagged:
            break
        flagged |= more
    backwards = flagged or where.place == "backward loop"
    place: Place = "backward loop" if backwards else "forward loop"
    there = _Where(
        place, where.times * eqn.params["length"], where.inside, frozenset(inner.invars[num_consts:])
    )
    return _products(inner, flagged, there)


def _product(eqn: core.JaxprEqn, backward: set[core.Var], changing: set[core.Var], where: _Where) -> Product:
    operands = jaxprs.variables(eqn.invars)
    of_cotangent = [v in backward for v in operands]
    role: Role = "value"
    if any(of_cotangent):
        others = [v for v, yes in zip(operands, of_cotangent, strict=True) if not yes]
        both_change = all(v in changing for v in others)
        role = (
            "gradient of the weight" if where.place != "once" and both_change else "gradient of the operand"
        )
    elif where.place == "backward loop":
        role = "computed again"
    shapes = tuple(jaxprs.shape(v) for v in eqn.invars)
    moved = sum(map(jaxprs.nbytes, [*operands, *eqn.outvars]))
    return Product(
        jaxprs.site(eqn),
        role,
        where.place,
        where.times,
        shapes,
        jaxprs.shape(eqn.outvars[0]),
        jaxprs.flops(eqn),
        moved,
        where.inside,
    )
