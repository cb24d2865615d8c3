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
from ._rewards import check_rewards

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
    check_rewards(program, [(each.atom, each.sign) for each in terms])
    for each in terms:
        _check_decay(program, each)
    _check_likelihood(program, terms)
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


def _check_decay(program: Program, term: _Term) -> None:
    """The square of a parameter is added to a loss, never taken from it."""
    paths = {var: path for path, var in program.inputs["params"].items()}
    source = program.source(term.atom)
    eqn = program.makers.get(source) if isinstance(source, core.Var) else None
    if term.sign > 0 or eqn is None or not is_square(eqn):
        return
    weight = program.source(eqn.invars[0])
    if among(weight, paths):
        fail(
            "numbers",
            f"the loss has minus the square of {paths[weight]} ({place(eqn)}): it has no lower bound, and weights are "
            "driven away from zero. The weight decay has the wrong sign",
            "the sign of the penalty: loss + rate * sum(w**2)",
            [paths[weight], place(eqn)],
        )


def _check_likelihood(program: Program, terms: list[_Term]) -> None:
    """A logarithm of probabilities is maximized; a loss that only minimizes some makes what is right unlikely."""
    signs = [(each, each.sign * direction) for each in terms if (direction := _direction(program, each.eqn))]
    wrong = [each for each, sign in signs if sign > 0]
    if wrong and len(wrong) == len(signs):
        where = place(wrong[0].eqn) if wrong[0].eqn is not None else ""
        fail(
            "numbers",
            f"the loss has plus the logarithm of the probabilities of what is right ({where}), and minimizes it: a "
            "log-likelihood has the wrong sign, and the loss has no lower bound",
            "the sign: the loss is minus the mean of log_softmax(logits)[label], and optax's cross-entropy has that "
            "minus in it",
            [where],
        )


def _direction(program: Program, eqn: core.JaxprEqn | None) -> int:
    """1 for x − log Σ exp, also if some are picked from it, −1 for the other way round, and 0 for all else."""
    if eqn is not None and eqn.primitive.name == "gather":
        eqn = program.origin(eqn.invars[0])
    if eqn is None or eqn.primitive.name != "sub":
        return 0
    logs = [_is_log_of_sum(program, atom) for atom in eqn.invars]
    return int(logs[1]) - int(logs[0])


def _is_log_of_sum(program: Program, atom: Any) -> bool:
    """log Σ exp, perhaps with the largest added."""
    made = program.origin(atom)
    if made is not None and made.primitive.name == "add":
        return any(_is_log_of_sum(program, each) for each in made.invars if isinstance(each, core.Var))
    if made is None or made.primitive.name != "log":
        return False
    total = program.origin(made.invars[0], SHAPES | {"abs"})
    return total is not None and total.primitive.name == "reduce_sum" and _is_of_exp(program, total.invars[0])


def _is_of_exp(program: Program, atom: Any) -> bool:
    made = program.origin(atom)
    return made is not None and made.primitive.name == "exp"


def is_square(eqn: core.JaxprEqn) -> bool:
    """Whether it multiplies a value with itself."""
    name = eqn.primitive.name
    is_power = name == "square" or (name == "integer_pow" and eqn.params["y"] == 2)
    return is_power or (name == "mul" and eqn.invars[0] is eqn.invars[1])


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
