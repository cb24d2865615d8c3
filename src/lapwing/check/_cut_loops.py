"""Loops over data whose state a stop_gradient detaches in every step: nothing is learned from earlier inputs.

A gradient crosses from one step to the one before through a part of the carry that is live at the end of a step and at
the beginning of the next. Left alone are loops that read no data (the iterations of a solver, refinement with a loss in
each), and loops with another recurrence inside: a step of them is a window of truncated backpropagation.
"""

from collections.abc import Collection
from typing import Any

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import own_place, place
from ._live import STOP, body_of, is_floating, live
from ._report import fail

# What adds up or moves without making anything of it.
_ADDS = ("add", "add_any", "sub", "max", "min", "select_n", "convert_element_type", "dynamic_update_slice")
_ADDS += ("scatter", "scatter-add", "concatenate", "broadcast_in_dim", "reshape", "squeeze", "copy", "slice")
_ADDS += ("dynamic_slice", "expand_dims", STOP)


def check_loops(jaxpr: core.Jaxpr, trained: Collection[core.Var], data: Collection[core.Var]) -> None:
    """Of a program with these trained inputs and these data, and of the loops inside."""
    flows = live(jaxpr.eqns, trained)
    of_data = jaxprs.depends_on(jaxpr.eqns, data)
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "scan":
            continue
        loop, closed_over = jaxprs.loop_of(eqn)
        body = body_of(loop.jaxpr)
        first = len(closed_over)
        inputs = dict(zip(body.invars[first:], eqn.invars, strict=True))
        own = [var for var, atom in inputs.items() if isinstance(atom, core.Var) and atom in flows]
        given = [var for var, atom in inputs.items() if isinstance(atom, core.Var) and atom in of_data]
        is_read = not live(jaxpr.eqns, eqn.outvars).isdisjoint(jaxprs.variables(jaxpr.outvars))
        xs = body.invars[loop.num_consts + loop.num_carry :]
        if own and is_read and loop.length > 1 and not set(xs).isdisjoint(given):
            _check_loop(eqn, _Body(body, loop.num_consts, loop.num_carry), own)
        check_loops(body, own, given)


class _Body:
    """A step: what it carries, and what the state is made of and goes into."""

    def __init__(self, jaxpr: core.Jaxpr, num_consts: int, num_carry: int) -> None:
        self.eqns, self.outs = jaxpr.eqns, jaxpr.outvars
        self.carry = jaxpr.invars[num_consts : num_consts + num_carry]
        self.consts = jaxpr.invars[:num_consts]
        self.after = jaxpr.outvars[:num_carry]
        self.made = live(jaxpr.eqns, jaxpr.invars)
        self.ends = set(jaxprs.variables(jaxpr.outvars))

    def is_state(self, old: core.Var, new: Any) -> bool:
        """Whether a part of the carry goes into a later one, and is more than a sum."""
        if not is_floating(old) or new is old or not isinstance(new, core.Var):
            return False
        reached = jaxprs.depends_on(self.eqns, [old])
        if reached.isdisjoint(jaxprs.variables(self.after)):
            return False
        eqns = [eqn for eqn in self.eqns if not reached.isdisjoint(jaxprs.variables(eqn.invars))]
        needed = jaxprs.needed(eqns, self.after)
        return any(eqn.primitive.name not in _ADDS for eqn in needed)

    def crosses(self, old: core.Var, new: Any) -> bool:
        """Whether a gradient flows through this part of the carry, out of one step and into the next."""
        return new in self.made and not live(self.eqns, [old]).isdisjoint(self.ends)

    def is_window(self, states: list[core.Var]) -> bool:
        """Whether the states go through another loop, or through the same weights twice."""
        reached = jaxprs.depends_on(self.eqns, states)
        of_state = [eqn for eqn in self.eqns if not reached.isdisjoint(jaxprs.variables(eqn.invars))]
        if any(eqn.primitive.name in ("scan", "while") for eqn in of_state):
            return True
        products = [eqn for eqn in of_state if eqn.primitive.name == "dot_general"]
        used: list[core.Var] = []
        for const in self.consts:
            copies = jaxprs.depends_on([eqn for eqn in self.eqns if eqn.primitive.name in _MOVES], [const])
            used += [const for eqn in products if not copies.isdisjoint(jaxprs.variables(eqn.invars))]
        return len(used) > len(set(used))


_MOVES = ("convert_element_type", "transpose", "reshape", "broadcast_in_dim", "squeeze", "copy")


def _check_loop(eqn: core.JaxprEqn, body: _Body, trained: list[core.Var]) -> None:
    pairs = [pair for pair in zip(body.carry, body.after, strict=True) if body.is_state(*pair)]
    if not pairs or any(body.crosses(*pair) for pair in pairs) or body.is_window([old for old, _ in pairs]):
        return
    # The state is made with trained weights, and what is done to it would be live without the stops.
    after = jaxprs.depends_on(body.eqns, [old for old, _ in pairs])
    of_weights = jaxprs.depends_on(body.eqns, trained)
    stops = [
        each
        for each in body.eqns
        if each.primitive.name == STOP
        and own_place(each) is not None
        and (each.invars[0] in after or each.invars[0] in of_weights)
    ]
    if stops and not live(body.eqns, trained).isdisjoint(body.ends):
        where = place(stops[0])
        fail(
            "cuts",
            f"stop_gradient at {where} detaches the state in every step of the loop at {place(eqn)}: no gradient flows "
            "through time, and nothing is learned of what an earlier input should leave in the state",
            "where the state is detached: between windows of many steps, not inside the loop; if one step is meant, "
            "say so in expected_findings",
            [where],
        )
