"""The derivative of a loop, split: what must loop, and what can be computed outside for all steps at once.

A tangent inside the loop is a sum of two parts: one that depends on the carried tangent (`step`) and one that depends
on the tangents of constants and xs alone (`outer`). For `h@W` they are `dh@W` and `h@dW`. Both parts are followed
through the linear program. The outer part is computed outside; where the two must be added, it enters the loop as one
more x, a *tap*.

Transposed, this is what makes the gradient fast: the cotangent of a tap leaves the backward loop as a stacked output,
and `dW` is one product over time and batch instead of one small product and one addition per step.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.loops._costs import Costs, rows_of
from lapwing.loops._decisions import Decision
from lapwing.loops._residuals import minimum_cut


class Outer(enum.IntEnum):
    """How an outer part is computed: once for all steps, or for each step (all at once)."""

    ONCE = 1
    EACH = 2


@dataclasses.dataclass(frozen=True)
class Form:
    """Which parts a tangent has."""

    step: bool
    outer: Outer | None

    @property
    def mixed(self) -> bool:
        return self.step and self.outer is not None


SUMS = frozenset({p.add_p, p.add_jaxvals_p, p.sub_p})
# Linear in one argument, and no larger after than before: f(step + outer) = f(step) + f(outer) costs nothing.
PUSHABLE = frozenset(
    {p.neg_p, p.reshape_p, p.squeeze_p, p.slice_p, p.transpose_p, p.convert_element_type_p, p.copy_p}
)


def is_pushable(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive in SUMS or eqn.primitive in PUSHABLE or eqn.primitive.name == "split"


@dataclasses.dataclass(frozen=True)
class Split:
    """Where each equation of a linear program runs. One on a mixed value runs twice, once per part."""

    once: list[core.JaxprEqn]
    each: list[core.JaxprEqn]
    step: list[core.JaxprEqn]
    taps: list[core.Var]
    """Values whose outer part enters the loop as an x."""
    kept: list[core.Var]
    """Values whose outer part (computed once) enters the loop as a constant."""
    forms: dict[core.Var, Form]
    decisions: list[Decision]

    def has_outer(self, var: core.Var, eqn: core.JaxprEqn) -> bool:
        """Whether `eqn`, run outside, reads an outer part of `var`. One that entered the loop is gone."""
        return self.forms[var].outer is not None

    def has_step(self, var: core.Var, eqn: core.JaxprEqn) -> bool:
        """Whether `eqn`, run in the loop, reads `var` there: what runs twice reads each part only once."""
        return self.forms[var].step or id(eqn) not in self._run_outside

    @functools.cached_property
    def _run_outside(self) -> set[int]:
        return {id(eqn) for eqn in [*self.each, *self.once]}


@dataclasses.dataclass
class _Splitter:
    moving: set[core.Var]
    length: int
    costs: Costs
    early: frozenset[core.Var] = frozenset()
    """Values whose outer part enters the loop as soon as it is there."""

    def __post_init__(self):
        self.forms: dict[core.Var, Form] = {}
        self.taps: dict[core.Var, None] = {}
        self.kept: dict[core.Var, None] = {}
        self.once: list[core.JaxprEqn] = []
        self.each: list[core.JaxprEqn] = []
        self.step: list[core.JaxprEqn] = []
        self.decisions: list[Decision] = []

    def bring_in(self, var: core.Var):
        """Let the outer part of `var` enter the loop. A mixed value is a step value from then on."""
        form = self.forms[var]
        if form.outer is None or var in self.taps or var in self.kept:
            return
        stays_constant = form.outer is Outer.ONCE and not self.costs.stacks(var, self.length)
        (self.kept if stays_constant else self.taps)[var] = None
        if form.mixed:
            self.forms[var] = Form(step=True, outer=None)

    def assign(self, eqn: core.JaxprEqn, pushes_all: Callable[[core.Var], bool]):
        tangents = [v for v in jaxprs.variables(eqn.invars) if v in self.forms]
        forms = [self.forms[v] for v in tangents]
        has_step = any(form.step for form in forms)
        outer = max((form.outer for form in forms if form.outer is not None), default=None)
        if outer is not None and not has_step and not self._leaves(eqn, outer):
            for v in tangents:
                self.bring_in(v)
            has_step, outer = True, None
        elif has_step and outer is not None and not is_pushable(eqn):
            for v in tangents:
                self.bring_in(v)
            outer = None
        if outer is Outer.ONCE and any(v in self.moving for v in jaxprs.variables(eqn.invars)):
            outer = Outer.EACH
        if has_step:
            self.step.append(eqn)
        if outer is not None:
            (self.once if outer is Outer.ONCE else self.each).append(eqn)
        for v in eqn.outvars:
            self.define(v, Form(has_step, outer))
            if self.forms[v].mixed and not pushes_all(v):
                self.bring_in(v)

    def define(self, var: core.Var, form: Form):
        self.forms[var] = form
        if var in self.early and form.outer is not None:
            self.bring_in(var)
            self.forms[var] = Form(step=True, outer=None)

    def _leaves(self, eqn: core.JaxprEqn, outer: Outer) -> bool:
        """An equation on outer parts alone runs outside, unless it cannot, or is a product cheaper in the loop."""
        if eqn.primitive is p.custom_lin_p or jaxprs.chooses(eqn):
            return False
        meets_step_value = any(v in self.moving for v in jaxprs.variables(eqn.invars))
        if outer is Outer.EACH or not meets_step_value or not jaxprs.holds_products(eqn):
            return True
        (side,) = [i for i, atom in enumerate(eqn.invars) if atom in self.forms][:1]
        rows = rows_of(eqn, 1 - side) if eqn.primitive in jaxprs.PRODUCTS else 1
        operand = jaxprs.nbytes(eqn.invars[1 - side]) if len(eqn.invars) == 2 else 0
        stack = sum(map(jaxprs.nbytes, eqn.outvars))
        weight = jaxprs.variables(eqn.invars)[side]
        self.decisions.append(self.costs.defers(eqn, self.length, weight, rows, operand, stack))
        return self.decisions[-1].taken


def split(
    linear: core.Jaxpr,
    tangents: tuple[list[core.Var], list[core.Var], list[core.Var]],
    num_carry_out: int,
    moving: set[core.Var],
    length: int,
    costs: Costs,
) -> Split:
    """Split a linear program. `tangents`: those of constants, carries, xs; `moving`: coefficients that change.

    Outer parts first stay outside as long as they can. What then enters the loop may be large where it could have been
    small before (an outer product of two vectors), so the split is done again with the smallest taps.
    """
    latest = _split(linear, tangents, num_carry_out, _Splitter(moving, length, costs))
    early = _smallest_taps(latest, [*tangents[0], *tangents[2]])
    if early is None:
        return latest
    return _split(linear, tangents, num_carry_out, _Splitter(moving, length, costs, early))


def _smallest_taps(found: Split, inputs: list[core.Var]) -> frozenset[core.Var] | None:
    """Where the outer parts that enter the loop are smallest; None if that is where they enter already.

    What comes from a product with a weight's tangent must be computed outside, everything else may be inside.
    """
    outside = [*found.once, *found.each]
    products = [v for eqn in outside if jaxprs.holds_products(eqn) for v in eqn.outvars]
    edges = [
        (source, target)
        for eqn in outside
        if not jaxprs.holds_products(eqn)
        for source in jaxprs.variables(eqn.invars)
        if source in found.forms
        for target in eqn.outvars
    ]
    smallest = minimum_cut(edges, [*inputs, *products], found.taps)
    if sum(map(jaxprs.nbytes, smallest)) >= sum(map(jaxprs.nbytes, found.taps)):
        return None
    return frozenset(smallest)


def _split(
    linear: core.Jaxpr,
    tangents: tuple[list[core.Var], list[core.Var], list[core.Var]],
    num_carry_out: int,
    splitter: _Splitter,
) -> Split:
    consts, carries, xs = tangents
    for v in consts:
        splitter.define(v, Form(False, Outer.ONCE))
    for v in carries:
        splitter.define(v, Form(True, None))
    for v in xs:
        splitter.define(v, Form(False, Outer.EACH))
    carry_out = dict.fromkeys(jaxprs.variables(linear.outvars[:num_carry_out]))
    stopping = {v for eqn in linear.eqns if not is_pushable(eqn) for v in jaxprs.variables(eqn.invars)}

    def pushes_all(v: core.Var) -> bool:
        return v not in stopping and v not in carry_out

    for eqn in linear.eqns:
        splitter.assign(eqn, pushes_all)
    for v in carry_out:
        if v in splitter.forms:
            splitter.bring_in(v)
    s = splitter
    return Split(s.once, s.each, s.step, list(s.taps), list(s.kept), s.forms, s.decisions)
