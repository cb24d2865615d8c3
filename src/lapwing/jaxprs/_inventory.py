"""Every matrix product and every loop of a gradient program: where it runs; of a product also how often, and its role.

The program is a jaxpr of (arguments, cotangents) -> gradients. What depends on the cotangents is the backward pass; a
loop that does is a backward loop. A product in a backward loop that does not depend on them is recomputed.
"""

import dataclasses
from collections.abc import Iterator, Sequence
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
class Scan:
    """One loop of the program."""

    eqn: core.JaxprEqn
    place: Place
    within: tuple[core.JaxprEqn, ...]
    """The loops that it is a part of, from the outermost."""


@dataclasses.dataclass(frozen=True)
class _Where:
    place: Place
    times: int
    inside: str | None
    changing: frozenset[core.Var]
    """In a loop, what differs from step to step."""
    loops: tuple[core.JaxprEqn, ...] = ()
    """The loops, from the outermost."""


def inventory(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[Product]:
    """All products of a gradient program whose `cotangents` are these inputs.

    >>> import jax, jax.numpy as jnp
    >>> gradient = lambda w, g: jax.vjp(lambda w: jnp.ones(2) @ w, w)[1](g)
    >>> jaxpr = jax.make_jaxpr(gradient)(jnp.eye(2), jnp.ones(2)).jaxpr
    >>> [(product.role, product.times) for product in inventory(jaxpr, jaxpr.invars[1:])]
    [('value', 1), ('gradient of the operand', 1)]
    """
    return [
        _product(eqn, backward, changing, where)
        for eqn, backward, changing, where in _walk(jaxpr, set(cotangents), _OUTSIDE)
        if eqn.primitive in jaxprs.PRODUCTS
    ]


def loop_inventory(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[Scan]:
    """All loops of a gradient program whose `cotangents` are these inputs, each before those inside it.

    >>> import jax, jax.numpy as jnp
    >>> loss = lambda w: jax.lax.scan(lambda h, _: (h * w, None), 1.0, length=3)[0]
    >>> jaxpr = jax.make_jaxpr(lambda w, g: jax.vjp(loss, w)[1](g))(2.0, 1.0).jaxpr
    >>> [loop.place for loop in loop_inventory(jaxpr, jaxpr.invars[1:])]
    ['forward loop', 'backward loop']
    """
    return [
        Scan(eqn, where.place, where.loops[:-1])
        for eqn, _, _, where in _walk(jaxpr, set(cotangents), _OUTSIDE)
        if eqn.primitive is p.scan_p
    ]


SEEN_THROUGH = {p.jit_p, p.closed_call_p, p.remat_p, p.custom_jvp_call_p}
_OUTSIDE = _Where("once", 1, None, frozenset())
_Found = tuple[core.JaxprEqn, set[core.Var], set[core.Var], _Where]


def _walk(jaxpr: core.Jaxpr, backward: set[core.Var], where: _Where) -> Iterator[_Found]:
    """Products and loops. `backward`: the inputs that depend on the cotangents."""
    backward = jaxprs.depends_on(jaxpr.eqns, backward)
    changing = jaxprs.depends_on(jaxpr.eqns, where.changing)
    for eqn in jaxpr.eqns:
        if eqn.primitive in jaxprs.PRODUCTS:
            yield eqn, backward, changing, where
        elif eqn.primitive is p.scan_p:
            yield from _in_scan(eqn, backward, where)
        else:
            for inner in jaxprs.inner_jaxprs(eqn):
                hidden = where.inside if eqn.primitive in SEEN_THROUGH else eqn.primitive.name
                inputs = list(zip(inner.invars[::-1], eqn.invars[::-1], strict=False))
                there = dataclasses.replace(
                    where, inside=hidden, changing=frozenset(_members(changing, inputs))
                )
                yield from _walk(inner, _members(backward, inputs), there)


def _members(group: set[core.Var], inputs: list[tuple[core.Var, jaxprs.Atom]]) -> set[core.Var]:
    return {inner for inner, outer in inputs if isinstance(outer, core.Var) and outer in group}


def _in_scan(eqn: core.JaxprEqn, backward: set[core.Var], where: _Where) -> Iterator[_Found]:
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
    changing = frozenset(inner.invars[num_consts:])
    times = where.times * eqn.params["length"]
    there = _Where(place, times, where.inside, changing, (*where.loops, eqn))
    yield eqn, flagged, set(changing), there
    yield from _walk(inner, flagged, there)


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
