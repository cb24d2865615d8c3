"""Straight-through estimators, read from sums: `x + stop_gradient(q - x)` is q, with the gradient of x.

A sum is a number of each of its terms, stopped or not. In a right one the terms of x cancel in the value, and what is
not stopped has the factor 1. If it has the factor -1, the value is right and the gradient points the other way; if what
is not stopped cancels by itself, no gradient is left. Both are findings only where the rest is a discrete function of
x, such as the nearest code: there the estimator is all that x gets.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._live import STOP, behind, body_of, is_floating, live
from ._report import fail

_SAME = ("convert_element_type", "copy", "copy_p", "reduce_precision", "optimization_barrier")
_DEEP, _FAR = 12, 24


class Term(NamedTuple):
    """A value in a sum, and whether a stop_gradient is around it there."""

    var: core.Var
    stopped: bool


def check_straight_through(jaxpr: core.Jaxpr) -> int:
    """Of a program and the loops and branches inside. Returns the number of estimators that are right."""
    sums = _Sums(jaxpr)
    right = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("add", "sub", "add_any") and is_floating(eqn.outvars[0]):
            right += sums.check(eqn)
        elif eqn.primitive.name in ("scan", "cond", "while"):
            right += sum(check_straight_through(body_of(inner)) for inner in jaxprs.inner_jaxprs(eqn))
    return right


class _Sums:
    def __init__(self, jaxpr: core.Jaxpr) -> None:
        self.eqns = jaxpr.eqns
        self.makers = {var: eqn for eqn in self.eqns for var in eqn.outvars}

    def check(self, eqn: core.JaxprEqn) -> int:
        terms: dict[Term, list[float]] = defaultdict(list)
        for term, factor in self._terms(eqn.outvars[0], 1.0, False, _DEEP):
            terms[term].append(factor)
        whole = {term: sum(factors) for term, factors in terms.items()}
        for (var, stopped), factor in whole.items():
            other = whole.get(Term(var, True), 0.0)
            is_cut = factor == 0 and any(terms[Term(var, stopped)])
            is_pair = not stopped and factor != 0 and factor + other == 0
            rest = [each.var for each, own in whole.items() if own and each.var is not var]
            if not (is_cut or is_pair) or jaxprs.size(var) < 2 or not rest:
                continue
            if is_pair and factor == 1:
                return 1
            if self._is_discrete_in(rest, var) and (is_cut or factor == -1):
                self._fail(eqn, is_cut)
        return 0

    def _terms(self, atom: Any, factor: float, stopped: bool, depth: int) -> Iterator[tuple[Term, float]]:
        if not isinstance(atom, core.Var):
            return
        eqn = self.makers.get(atom)
        name = eqn.primitive.name if eqn is not None and depth else ""
        if eqn is None or not is_floating(eqn.outvars[0]):
            yield Term(atom, stopped), factor
        elif name in ("add", "add_any", "sub"):
            left, right = eqn.invars
            yield from self._terms(left, factor, stopped, depth - 1)
            yield from self._terms(right, -factor if name == "sub" else factor, stopped, depth - 1)
        elif name == "neg":
            yield from self._terms(eqn.invars[0], -factor, stopped, depth - 1)
        elif name in (STOP, *_SAME) and is_floating(eqn.invars[0]):
            yield from self._terms(eqn.invars[0], factor, stopped or name == STOP, depth - 1)
        elif name == "mul" and (number := _number(eqn.invars)) is not None:
            (other,) = (each for each in eqn.invars if isinstance(each, core.Var))
            yield from self._terms(other, factor * number, stopped, depth - 1)
        else:
            yield Term(atom, stopped), factor

    def _is_discrete_in(self, rest: list[core.Var], var: core.Var) -> bool:
        """Whether these values depend on what a value is made of, and no gradient says so."""
        near = [
            each.outvars[0] for each in behind(self.eqns, [var])[::-1][:_FAR] if is_floating(each.outvars[0])
        ]
        for source in [var, *near]:
            reached, flows = jaxprs.depends_on(self.eqns, [source]), live(self.eqns, [source])
            if any(each in reached for each in rest) and not any(each in flows for each in rest):
                return True
        return False

    def _fail(self, eqn: core.JaxprEqn, is_cut: bool) -> None:
        where = place(eqn)
        if is_cut:
            what = "cuts the gradient whole: its terms cancel by themselves, and what comes before is not trained by it"
        else:
            what = "has the wrong sign: its value is right, and its gradient points in the opposite direction"
        fail(
            "cuts",
            f"the straight-through estimator at {where} {what}",
            "the place of stop_gradient: x + jax.lax.stop_gradient(q - x) has the value of q and the gradient of x",
            [where],
        )


def _number(atoms: Any) -> float | None:
    """The number among the factors of a product, if there is one."""
    numbers = [each for each in atoms if isinstance(each, core.Literal)]
    return float(np.asarray(numbers[0].val)) if len(numbers) == 1 and np.ndim(numbers[0].val) == 0 else None
