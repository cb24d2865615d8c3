"""The hoist pass: computations that need not loop leave the loop, before or after it.

Every equation of a step belongs to one stage, by what it depends on:

- once:   on constants only; runs one time.
- before: on constants and on this step's x; runs for all steps at once, batched, before the loop.
- step:   on the carry, and the carry on it; this must loop.
- after:  on the carry, but the carry not on it (a read-out); runs for all steps at once, after the loop.

Batching is worth its memory only for products, so `before` holds products with what they are computed from, and
`after` products with what is computed from them; on a GPU, where each operation of a step takes its time, `before` also
holds the normalization of a product. What is outside the loop is ordinary code, so its derivative is
ordinary too: the gradient of a hoisted product is one product over time and batch.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from lapwing import jaxprs
from lapwing.jaxprs import Env, Loop, Rule, bind
from lapwing.loops._bound import BoundLoop, Rewritten
from lapwing.loops._costs import Costs
from lapwing.loops._decisions import Decision
from lapwing.loops._over_time import bind_over_time, stack_all

Eqns = list[core.JaxprEqn]


@dataclasses.dataclass(frozen=True)
class Stages:
    """The equations of each stage, and the decisions that put them there."""

    once: Eqns
    before: Eqns
    step: Eqns
    after: Eqns
    decisions: tuple[Decision, ...]


def hoist(bound: BoundLoop, costs: Costs) -> Rewritten:
    """What does not depend on the carry runs before the loop, what the carry does not depend on after it."""
    loop = bound.loop
    plan = stages(loop, costs)
    wanted = _read_later(loop, plan)
    known = dict(zip(loop.consts, bound.consts, strict=True))
    known |= evaluate(plan.once, known, wanted)
    stacked = dict(zip(loop.xs, bound.xs, strict=True))
    stacked |= evaluate_over_time(plan.before, known, stacked, wanted)

    outside = {*known, *stacked, *(var for eqn in plan.after for var in eqn.outvars)}
    later = dict.fromkeys(jaxprs.variables(loop.ys) + jaxprs.reads(plan.after, []))
    emitted = [var for var in later if var not in outside]
    read = jaxprs.reads(plan.step, [*loop.carry_out, *emitted])
    consts = [var for var in read if var in known]
    xs = [var for var in read if var in stacked]
    jaxpr = jaxprs.part(loop.jaxpr, plan.step, [*consts, *loop.carry, *xs], [*loop.carry_out, *emitted])
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=len(consts))

    def undo(out: list[Any]) -> list[Any]:
        found = stacked | dict(zip(emitted, out[loop.num_carry :], strict=True))
        found |= evaluate_over_time(plan.after, known, found, wanted)
        ys = [
            found[y] if isinstance(y, core.Var) and y in found else _repeat(loop, y, known) for y in loop.ys
        ]
        return [*out[: loop.num_carry], *ys]

    left = BoundLoop(slim, [known[v] for v in consts], bound.init, [stacked[v] for v in xs])
    return Rewritten(left, undo, plan.decisions)


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
        if ready and not _stays(eqn):
            batch.update(eqn.outvars)
    return batch


def _stays(eqn: core.JaxprEqn) -> bool:
    """Whether an equation must run in each step by itself."""
    return eqn.primitive in jaxprs.RANDOM or bool(eqn.effects) or jaxprs.chooses(eqn)


def stages(loop: Loop, costs: Costs) -> Stages:
    """Assign every equation to its stage."""
    decisions: dict[int, Decision] = {}
    constant = constant_vars(loop)

    def moves(eqn: core.JaxprEqn, later: Sequence[core.JaxprEqn] = ()) -> bool:
        """Whether a product leaves the loop, and with it what is computed from it of `later`."""
        if not jaxprs.holds_products(eqn):
            return False
        same = [i for i, atom in enumerate(eqn.invars) if isinstance(atom, core.Literal) or atom in constant]
        weight = same[0] if len(same) == 1 else None
        along = _without(_reading(later, eqn.outvars), [eqn])
        return decisions.setdefault(id(eqn), costs.hoists(eqn, loop.length, weight, along)).taken

    batch = batch_vars(loop, constant)
    once = _made_in(loop.eqns, constant)
    before = _with_ancestors_and_biases(loop, _made_in(loop.eqns, batch), constant, moves)
    if costs.platform != "cpu":
        before += _normalizations(loop, _without(_made_in(loop.eqns, batch), before), before, constant)
    rest = _without(loop.eqns, once, before)
    bound = [v for eqn in rest if _stays(eqn) for v in eqn.outvars]
    looping = jaxprs.needed(rest, [*loop.carry_out, *bound])
    later = _without(rest, looping)
    products = [eqn for eqn in later if moves(eqn, later)]
    # What a product is computed from stays: to keep the values of all steps for it could take far more memory.
    after = _reading(rest, [var for eqn in products for var in eqn.outvars])
    return Stages(once, before, _without(rest, after), after, tuple(decisions.values()))


def _made_in(eqns: Iterable[core.JaxprEqn], variables: set[core.Var]) -> Eqns:
    return [eqn for eqn in eqns if variables.issuperset(eqn.outvars)]


def _reading(eqns: Sequence[core.JaxprEqn], variables: Iterable[core.Var]) -> Eqns:
    """The equations that make these variables, or depend on them."""
    reached = jaxprs.depends_on(eqns, variables)
    return [eqn for eqn in eqns if not reached.isdisjoint(eqn.outvars)]


def _without(eqns: Iterable[core.JaxprEqn], *others: Eqns) -> Eqns:
    gone = {id(eqn) for other in others for eqn in other}
    return [eqn for eqn in eqns if id(eqn) not in gone]


def _with_ancestors_and_biases(
    loop: Loop, batch: Eqns, constant: set[core.Var], moves: Callable[[core.JaxprEqn], bool]
) -> Eqns:
    """The products in `batch`, what they are computed from, and what is applied to their results alone (a bias)."""
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


def _normalizations(loop: Loop, batch: Eqns, before: Eqns, constant: set[core.Var]) -> Eqns:
    """What is computed from hoisted results alone, if something is summed there, and the loop is passed no more."""
    made = {var for eqn in before for var in eqn.outvars}
    found: Eqns = []
    for eqn in batch:
        if all(var in made or var in constant for var in jaxprs.variables(eqn.invars)):
            found.append(eqn)
            made.update(eqn.outvars)

    def passed_on(outside: Eqns) -> int:
        ours = {var for eqn in outside for var in eqn.outvars}
        read = jaxprs.reads(_without(loop.eqns, outside), loop.carry_out)
        return sum(jaxprs.nbytes(var) for var in read if var in ours)

    sums = any(eqn.primitive.name.startswith("reduce_") for eqn in found)
    return found if sums and passed_on([*before, *found]) <= passed_on(before) else []


def _read_later(loop: Loop, plan: Stages) -> set[core.Var]:
    """What a stage reads of another; other results need not be passed on."""
    parts = [plan.once, plan.before, plan.step, plan.after]
    return {*jaxprs.variables(loop.jaxpr.outvars), *(var for part in parts for var in jaxprs.reads(part, []))}


def evaluate(eqns: Eqns, env: Env, wanted: set[core.Var], rule: Rule = bind) -> Env:
    """Run `eqns` on the values in `env`; returns those of their results that are wanted."""
    outputs = [var for eqn in eqns for var in eqn.outvars if var in wanted]
    env = dict(env)
    jaxprs.run_equations(jaxprs.needed(eqns, outputs), env, rule)
    return {var: env[var] for var in outputs}


def evaluate_over_time(eqns: Eqns, known: Env, stacked: Env, wanted: set[core.Var]) -> Env:
    """The same for all steps at once: `stacked` values have time as their first axis, and so have the results."""
    found = evaluate(eqns, known | stack_all(stacked), wanted, bind_over_time)
    return {var: stack.value for var, stack in found.items()}


def _repeat(loop: Loop, atom: jaxprs.Atom, known: Env) -> Any:
    value = atom.val if isinstance(atom, core.Literal) else known[atom]
    repeated = jnp.broadcast_to(value, (loop.length, *jaxprs.shape(atom)))
    return repeated if jaxprs.is_weak(atom) else repeated.astype(jaxprs.dtype(atom))
