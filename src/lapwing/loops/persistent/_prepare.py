"""What of a loop runs before its kernel, in it, and after it.

Before: what depends on constants alone, such as a transposed weight. After: what only makes outputs and fits in no
kernel, such as the sum over the batch that the gradient of a bias is; the kernel returns what that is made of.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

from lapwing import jaxprs
from lapwing.jaxprs import Loop, Values
from lapwing.loops._small import called
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._stages import Stages, check_types, stages_of


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A loop that fits in a kernel, with what goes around it."""

    stages: Stages
    original: Loop
    before: core.Jaxpr
    """From the constants to further constants, which come first."""
    after: core.Jaxpr
    """From the constants, all of them, and the outputs of a step, to the outputs of the original."""

    def run(self, kernel: Callable[[Values], Sequence[Any]], values: Values) -> list[Any]:
        """The last carry and the stacked outputs of the original loop, flat, where `kernel` runs what is left."""
        first = self.original.num_consts
        consts = [*jaxprs.interpret(self.before, values[:first]), *values[:first]]
        out = kernel([*consts, *values[first:]])
        carry, ys = out[: self.original.num_carry], out[self.original.num_carry :]
        return [*carry, *jax.vmap(lambda *ys: jaxprs.interpret(self.after, [*consts, *ys]))(*ys)]


def prepare(loop: Loop) -> Prepared:
    """Cut a loop into these three. Raises DoesNotFitError if it cannot be one kernel."""
    # A step is traced again, in which 64 bits become 32 if jax has them switched off by now.
    check_types(var for var in loop.jaxpr.invars if str(var.aval).partition("[")[0].endswith("64"))
    opened = _opened(loop)
    constant = jaxprs.depends_on(opened.eqns, [*opened.carry, *opened.xs])
    early = [eqn for eqn in opened.eqns if not constant.intersection(eqn.outvars)]
    rest = [eqn for eqn in opened.eqns if constant.intersection(eqn.outvars)]
    made = {var for eqn in early for var in eqn.outvars}
    more = [var for var in jaxprs.reads(rest, opened.jaxpr.outvars) if var in made]
    consts = [*more, *opened.consts]
    late: list[core.JaxprEqn] = []
    for_carry = jaxprs.needed(rest, opened.carry_out)
    while True:
        inside = [eqn for eqn in rest if eqn not in late]
        ys = _outputs(opened, late, consts)
        jaxpr = jaxprs.part(
            opened.jaxpr, inside, [*consts, *opened.carry, *opened.xs], [*opened.carry_out, *ys]
        )
        try:
            stages = stages_of(dataclasses.replace(opened, jaxpr=jaxpr, num_consts=len(consts)))
        except DoesNotFitError as error:
            if error.eqn is None or error.eqn in for_carry:
                raise
            outside = [var for eqn in (*late, error.eqn) for var in eqn.outvars]
            reached = jaxprs.depends_on(rest, outside)
            late = [eqn for eqn in rest if reached.intersection(eqn.outvars)]
            continue
        before = jaxprs.part(opened.jaxpr, early, opened.consts, more)
        after = jaxprs.part(opened.jaxpr, late, [*consts, *ys], opened.ys)
        return Prepared(stages, loop, before, after)


def _opened(loop: Loop) -> Loop:
    """The same loop with nothing called in it."""
    avals = [var.aval for var in loop.jaxpr.invars]
    rule = jaxprs.open_calls(called=called)
    jaxpr, closed_over = jaxprs.trace(lambda *values: jaxprs.interpret(loop.jaxpr, values, rule), avals)
    if closed_over:
        raise DoesNotFitError("a step closes over an array")
    return dataclasses.replace(loop, jaxpr=jaxpr)


def _outputs(loop: Loop, late: Sequence[core.JaxprEqn], consts: Sequence[core.Var]) -> list[core.Var]:
    """What a step in the kernel returns: the outputs, or what those are made of that are made later."""
    return [var for var in jaxprs.reads(late, loop.ys) if var not in consts]
