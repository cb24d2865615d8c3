"""The forward loop: what can leave it, before and after.

Every equation of a step belongs to one stage, by what it depends on:

- once:   on constants only; runs one time.
- before: on constants and on this step's x; all steps at once, as one batched computation, ahead of the loop.
- step:   on the carry, and the carry on it; this is what must loop.
- after:  on the carry, but the carry not on it (a read-out); all steps at once, after the loop.

Batching is worth its memory only for products, so `before` holds products with what leads to them, and `after`
is used only if there is a product in it. Everything outside the loop is ordinary code, so its derivative is ordinary
too: the gradient of a hoisted product is one product over time and batch.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core

from lapwing.loops import _jaxprs as jaxprs
from lapwing.loops._costs import Costs
from lapwing.loops._loop import Loop, Values
from lapwing.loops._over_time import run_over_time

Eqns = list[core.JaxprEqn]


@dataclasses.dataclass(frozen=True)
class Stages:
    once: Eqns
    before: Eqns
    step: Eqns
    after: Eqns


def without_invariant_carries(
    loop: Loop, consts: Values, init: Values
) -> tuple[Loop, Values, Values, Callable[[list[Any]], list[Any]]]:
    """The loop with the carries that no step changes as constants, and how to put them back among its results."""
    fixed = [i for i, (a, b) in enumerate(zip(loop.carry, loop.carry_out, strict=True)) if a is b]
    moving = [i for i in range(loop.num_carry) if i not in fixed]
    carry, carry_out = loop.carry, loop.carry_out
    inputs = [*loop.consts, *(carry[i] for i in fixed), *(carry[i] for i in moving), *loop.xs]
    jaxpr = loop.jaxpr.replace(invars=inputs, outvars=[*(carry_out[i] for i in moving), *loop.ys])
    num_consts = loop.num_consts + len(fixed)
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=num_consts, num_carry=len(moving))

    def restore(out: list[Any]) -> list[Any]:
        values = dict(zip(moving, out[: len(moving)], strict=True)) | {i: init[i] for i in fixed}
        return [*(values[i] for i in range(loop.num_carry)), *out[len(moving) :]]

    return slim, [*consts, *(init[i] for i in fixed)], [init[i] for i in moving], restore


def constant_vars(loop: Loop) -> set[core.Var]:
    """All variables that depend on constants only."""
    moving = jaxprs.depends_on(loop.eqns, [*loop.carry, *loop.xs])
    return {var for eqn in loop.eqns for var in eqn.outvars if var not in moving} | set(loop.consts)


def batch_vars(loop: Loop, constant: set[core.Var]) -> set[core.Var]:
    """All variables that depend on x and constants only, and may be computed for all steps at once."""
    batch = set(loop.xs)
    for eqn in loop.eqns:
        inputs = set(jaxprs.variables(eqn.invars))
        ready = inputs <= batch | constant and not inputs <= constant
        if ready and eqn.primitive not in jaxprs.RANDOM and not eqn.effects:
            batch.update(eqn.outvars)
    return batch


def stages(loop: Loop, costs: Costs) -> Stages:
    """Give every equation its stage."""

    def moves(eqn: core.JaxprEqn) -> bool:
        return jaxprs.holds_products(eqn) and costs.moves(eqn, loop.length)

    constant = constant_vars(loop)
    batch = batch_vars(loop, constant)
    once = _made_in(loop.eqns, constant)
    before = _with_ancestors_and_biases(loop, _made_in(loop.eqns, batch), constant, moves)
    rest = _without(loop.eqns, once, before)
    bound = [v for eqn in rest if eqn.primitive in jaxprs.RANDOM or eqn.effects for v in eqn.outvars]
    step = jaxprs.needed(rest, [*loop.carry_out, *bound])
    after = _without(rest, step)
    if not any(map(moves, after)):
        step, after = rest, []
    return Stages(once, before, step, after)


def _made_in(eqns: Iterable[core.JaxprEqn], variables: set[core.Var]) -> Eqns:
    return [eqn for eqn in eqns if variables.issuperset(eqn.outvars)]


def _without(eqns: Iterable[core.JaxprEqn], *others: Eqns) -> Eqns:
    gone = {id(eqn) for other in others for eqn in other}
    return [eqn for eqn in eqns if id(eqn) not in gone]


def _with_ancestors_and_biases(
    loop: Loop, batch: Eqns, constant: set[core.Var], moves: Callable[[core.JaxprEqn], bool]
) -> Eqns:
    """The products in `batch`, what leads to them, and what is done to their results alone at no growth (a bias)."""
    products = [eqn for eqn in batch if moves(eqn)]
    before = jaxprs.needed(batch, [var for eqn in products for var in eqn.outvars]) if products else []
    made = {var for eqn in before for var in eqn.outvars}
    uses = loop.uses()
    for eqn in _without(batch, before):
        inputs = [var for var in jaxprs.variables(eqn.invars) if var not in constant]
        ours = all(var in made and uses[var] == 1 for var in inputs)
        grows = sum(map(jaxprs.size, eqn.outvars)) > sum(map(jaxprs.size, inputs))
        if ours and not grows and len(eqn.outvars) == 1:
            before.append(eqn)
            made.update(eqn.outvars)
    return before


def run_staged(
    loop: Loop, plan: Stages, consts: Values, init: Values, xs: Values, inner: Callable[..., list[Any]]
) -> list[Any]:
    """Run the loop stage by stage; `inner(loop, consts, init, xs)` runs what must loop."""
    wanted = _read_later(loop, plan)
    known = dict(zip(loop.consts, consts, strict=True))
    known |= evaluate(loop.jaxpr, plan.once, known, wanted)
    stacked = dict(zip(loop.xs, xs, strict=True))
    stacked |= over_time(plan.before, known, stacked, wanted)

    outside = {*known, *stacked, *(var for eqn in plan.after for var in eqn.outvars)}
    emitted = [
        v for v in dict.fromkeys(jaxprs.variables(loop.ys) + jaxprs.reads(plan.after, [])) if v not in outside
    ]
    read = jaxprs.reads(plan.step, [*loop.carry_out, *emitted])
    step_consts = [var for var in read if var in known]
    step_xs = [var for var in read if var in stacked]
    inputs = [*step_consts, *loop.carry, *step_xs]
    jaxpr = jaxprs.part(loop.jaxpr, plan.step, inputs, [*loop.carry_out, *emitted])
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=len(step_consts))
    out = inner(slim, [known[v] for v in step_consts], init, [stacked[v] for v in step_xs])

    stacked |= dict(zip(emitted, out[loop.num_carry :], strict=True))
    stacked |= over_time(plan.after, known, stacked, wanted)
    ys = [
        stacked[y] if isinstance(y, core.Var) and y in stacked else _repeat(loop, y, known) for y in loop.ys
    ]
    return [*out[: loop.num_carry], *ys]


def _read_later(loop: Loop, plan: Stages) -> set[core.Var]:
    """What any stage reads of another; the rest need not be handed on."""
    parts = [plan.once, plan.before, plan.step, plan.after]
    return {*jaxprs.variables(loop.jaxpr.outvars), *(var for part in parts for var in jaxprs.reads(part, []))}


def evaluate(jaxpr: core.Jaxpr, eqns: Eqns, known: dict, wanted: set[core.Var]) -> dict:
    """Run `eqns` on the known values; returns those of their results that are wanted."""
    outputs = [var for eqn in eqns for var in eqn.outvars if var in wanted]
    needed = jaxprs.needed(eqns, outputs)
    inputs = jaxprs.reads(needed, [])
    values = jaxprs.run(jaxprs.part(jaxpr, needed, inputs, outputs), *(known[var] for var in inputs))
    return dict(zip(outputs, values, strict=True))


def over_time(eqns: Eqns, known: dict, stacked: dict, wanted: set[core.Var]) -> dict:
    """The same for all steps at once: `stacked` values have time in front, and so have the results."""
    outputs = [var for eqn in eqns for var in eqn.outvars if var in wanted]
    _, found = run_over_time(jaxprs.needed(eqns, outputs), known, stacked)
    return {var: found[var] for var in outputs}


def _repeat(loop: Loop, atom: jaxprs.Atom, known: dict) -> Any:
    value = atom.val if isinstance(atom, core.Literal) else known[atom]
    return jax.numpy.broadcast_to(value, (loop.length, *jaxprs.shape(atom))).astype(jaxprs.dtype(atom))
