"""A term of the loss whose sign is wrong, read from the program: `u − exp(u)` is minimized, and falls without bound.

The divergence of a normal distribution with log-variance u from the standard one has `exp(u) − u` (or `σ² − log σ²`),
the likelihood of counts with a log-rate u has `exp(u) − y u`: both have a smallest value. With the other sign there is
none. The loss is followed through sums, differences and factors that are no parameters, with the sign of each term.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail

_KEEPS = SHAPES | {"reduce_sum"}
_GROWS = frozenset(["exp", "exp2"])


@dataclass(frozen=True)
class _Term:
    """A value that enters the loss with a positive or negative factor."""

    atom: core.Var
    sign: int
    eqn: core.JaxprEqn | None


def check_signs(program: Program, params: PyTree, batch: PyTree) -> None:
    """Raises if a loss has the negative exponential (or square) of what it also has itself (or as a logarithm)."""
    out = program.closed.jaxpr.outvars[0]
    if jaxprs.shape(out) != ():
        return
    terms = _terms(program, out, params, batch)
    raised = {_base(program, each.atom) for each in terms if each.sign > 0}
    logs = {
        _squared(program, each.eqn.invars[0])
        for each in terms
        if each.sign > 0 and each.eqn is not None and each.eqn.primitive.name == "log"
    }
    for each in terms:
        if each.sign > 0 or each.eqn is None:
            continue
        is_exponential = each.eqn.primitive.name in _GROWS and _base(program, each.eqn.invars[0]) in raised
        if is_exponential or _squared(program, each.atom) in logs:
            what = "exp(u)" if is_exponential else "σ²"
            counterpart = "u" if is_exponential else "log σ"
            fail(
                "numbers",
                f"the loss has −{what} and +{counterpart} of the same values ({place(each.eqn)}): it has no lower "
                f"bound, and becomes more and more negative as {what} grows. A divergence or a log-likelihood has the "
                "wrong sign",
                "the sign of that term: a KL divergence is added to the loss, 0.5 * sum(exp(log_var) + mean**2 - 1 - "
                "log_var), and a log-likelihood subtracted",
                [place(each.eqn)],
            )


def _terms(program: Program, out: Any, params: PyTree, batch: PyTree) -> list[_Term]:
    """The values that a scalar is a sum of and those between, with the signs of their factors."""
    of_params, signs = program.dependent("params"), _Signs(program, params, batch)
    found, waiting, seen = [], [(out, 1)], set()
    while waiting:
        atom, sign = waiting.pop()
        if not among(atom, of_params) or (atom, sign) in seen:
            continue
        seen.add((atom, sign))
        eqn = program.makers.get(atom)
        name = "" if eqn is None else eqn.primitive.name
        found.append(_Term(atom, sign, eqn))
        if eqn is not None and name in _KEEPS and name != "stop_gradient":
            waiting.append((eqn.invars[0], sign))
        elif eqn is not None and name in ("add", "add_any"):
            waiting += [(each, sign) for each in eqn.invars]
        elif eqn is not None and name == "select_n":
            waiting += [(each, sign) for each in eqn.invars[1:]]
        elif eqn is not None and name == "sub":
            waiting += [(eqn.invars[0], sign), (eqn.invars[1], -sign)]
        elif eqn is not None and name == "neg":
            waiting.append((eqn.invars[0], -sign))
        else:
            scaled = None if eqn is None else _scaled(eqn, of_params, signs)
            if scaled is not None:
                waiting.append((scaled[0], sign * scaled[1]))
    return found


def _scaled(eqn: core.JaxprEqn, of_params: Any, signs: "_Signs") -> tuple[Any, int] | None:
    """The value that an equation multiplies or divides by a factor of one sign that is no parameter."""
    if eqn.primitive.name not in ("mul", "div"):
        return None
    pairs = [(eqn.invars[0], eqn.invars[1])]
    if eqn.primitive.name == "mul":
        pairs.append((eqn.invars[1], eqn.invars[0]))
    for value, factor in pairs:
        if among(value, of_params) and not among(factor, of_params) and (sign := signs.of(factor)):
            return value, sign
    return None


class _Signs:
    """The signs of values that depend on no parameter; they are computed where they are no literals."""

    def __init__(self, program: Program, params: PyTree, batch: PyTree) -> None:
        self._program, self._args = program, (params, batch)

    def of(self, atom: Any) -> int:
        """1 or −1 if no entry has the other sign, and 0 for both or neither."""
        if isinstance(atom, core.Literal):
            value = np.asarray(atom.val)
        else:
            source = self._program.source(atom)
            if isinstance(source, core.Literal):
                value = np.asarray(source.val)
            else:
                value = np.asarray(self._program.values([source], *self._args)[0])
        if (value >= 0).all() and (value > 0).any():
            return 1
        return -1 if (value <= 0).all() and (value < 0).any() else 0


def _base(program: Program, atom: Any) -> Any:
    """What a value is a multiple of."""
    while True:
        atom = program.source(atom)
        eqn = program.makers.get(atom) if isinstance(atom, core.Var) else None
        if eqn is None or eqn.primitive.name not in ("mul", "div"):
            return atom
        literal = [isinstance(program.source(each), core.Literal) for each in eqn.invars]
        if literal == [False, True]:
            atom = eqn.invars[0]
        elif literal == [True, False] and eqn.primitive.name == "mul":
            atom = eqn.invars[1]
        else:
            return atom


def _squared(program: Program, atom: Any) -> Any:
    """What a value is a square of, or the value: σ² and σ have the same logarithm, up to a factor."""
    atom = _base(program, atom)
    eqn = program.makers.get(atom) if isinstance(atom, core.Var) else None
    if eqn is None:
        return atom
    name = eqn.primitive.name
    is_even = name == "square" or (name == "integer_pow" and eqn.params["y"] % 2 == 0 and eqn.params["y"] > 0)
    is_even = is_even or (name == "mul" and eqn.invars[0] is eqn.invars[1])
    return _base(program, eqn.invars[0]) if is_even else atom
