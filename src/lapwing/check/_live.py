"""What a gradient flows through, read from a program.

A value is live if it is floating-point and made of a live one, without a stop_gradient and without a detour through
integers, booleans or rounding. Functions with a custom derivative stay closed, since their rule says what flows; loops
and branches count as live as a whole.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import own_place
from ._program import CALLS, opened

STOP = "stop_gradient"
OPENED = tuple(name for name in CALLS if not name.startswith("custom"))
_FLAT = (STOP, "floor", "ceil", "round", "sign")


def opens(eqn: core.JaxprEqn) -> bool:
    """Whether to open a call: not a custom derivative, and not a function of a library with a stop_gradient of its own,
    such as the one of the maximum in a softmax."""
    if eqn.primitive.name not in OPENED:
        return False
    inside = (each for inner in jaxprs.inner_jaxprs(eqn) for each in jaxprs.equations(inner))
    stops = [own_place(each) for each in inside if each.primitive.name == STOP]
    return not stops or any(stops)


def is_floating(atom: Any) -> bool:
    return jnp.issubdtype(getattr(atom.aval, "dtype", jnp.int32), jnp.floating)


def live(eqns: Sequence[core.JaxprEqn], sources: Iterable[core.Var]) -> set[core.Var]:
    """All values that the gradient of these sources flows through."""
    reached = {var for var in sources if is_floating(var)}
    for eqn in eqns:
        if eqn.primitive.name not in _FLAT and not reached.isdisjoint(jaxprs.variables(eqn.invars)):
            reached.update(var for var in eqn.outvars if is_floating(var))
    return reached


def behind(eqns: Sequence[core.JaxprEqn], atoms: Iterable[Any]) -> list[core.JaxprEqn]:
    """The equations that make these values, and all that they are made of."""
    return jaxprs.needed(eqns, atoms)


def body_of(jaxpr: core.Jaxpr) -> core.Jaxpr:
    """The program of the body of a loop, or of a branch, with its calls opened."""
    return without_repeats(opened(core.ClosedJaxpr(jaxprs.without_constvars(jaxpr), ()), opens).jaxpr)


def without_repeats(jaxpr: core.Jaxpr) -> core.Jaxpr:
    """The program with what is computed twice computed once, so that the same value is the same variable."""
    same: dict[core.Var, core.Var] = {}
    seen: dict[Any, core.JaxprEqn] = {}
    kept: list[core.JaxprEqn] = []
    renamed = lambda atom: same.get(atom, atom) if isinstance(atom, core.Var) else atom  # noqa: E731
    for eqn in jaxpr.eqns:
        eqn = eqn.replace(invars=[renamed(atom) for atom in eqn.invars])
        first = seen.setdefault(_identity(eqn), eqn)
        if first is eqn:
            kept.append(eqn)
        else:
            same |= dict(zip(eqn.outvars, first.outvars, strict=True))
    return jaxpr.replace(eqns=kept, outvars=[renamed(atom) for atom in jaxpr.outvars])


def _identity(eqn: core.JaxprEqn) -> Any:
    """Equal for two equations only if they compute the same."""
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS and not eqn.effects:
        settings = str(params.get("call_jaxpr", params.get("jaxpr")))
    else:
        settings = (
            id(eqn) if eqn.effects or jaxprs.inner_jaxprs(eqn) else str(sorted(map(str, params.items())))
        )
    inputs = [
        atom if isinstance(atom, core.Var) else (str(atom.aval), np.asarray(atom.val).tobytes())
        for atom in eqn.invars
    ]
    return name, settings, *inputs
