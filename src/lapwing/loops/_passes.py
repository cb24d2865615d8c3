"""Passes: each takes a loop bound to its values and returns a simpler loop, also bound, and how to undo it.

`PASSES` is the list that `scan` runs, in order. A pass is a function of a `BoundLoop` and the cost model. It may
compute things outside the loop (before it, while it rewrites; after it, in `undo`), since everything is traced:

    rewritten = a_pass(bound, costs)
    results = rewritten.undo(rewritten.bound.run())    # equal to bound.run()

What is left after the last pass is the loop that runs, with a faster derivative (`_defer`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from lapwing.jaxprs import Loop
from lapwing.loops._accumulate import accumulators, drop_accumulators
from lapwing.loops._bound import BoundLoop, Pass, Rewritten
from lapwing.loops._concatenated import split_concatenated
from lapwing.loops._costs import Costs
from lapwing.loops._decisions import Decision
from lapwing.loops._hoist import hoist, stages
from lapwing.loops._merge import merge


def drop_invariant_carries(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Carries that no step changes become constants."""
    loop, init = bound.loop, bound.init
    fixed = [i for i, (a, b) in enumerate(zip(loop.carry, loop.carry_out, strict=True)) if a is b]
    moving = [i for i in range(loop.num_carry) if i not in fixed]
    carry, carry_out = loop.carry, loop.carry_out
    inputs = [*loop.consts, *(carry[i] for i in fixed), *(carry[i] for i in moving), *loop.xs]
    jaxpr = loop.jaxpr.replace(invars=inputs, outvars=[*(carry_out[i] for i in moving), *loop.ys])
    num_consts = loop.num_consts + len(fixed)
    slim = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=num_consts, num_carry=len(moving))

    def undo(out: list[Any]) -> list[Any]:
        values = dict(zip(moving, out[: len(moving)], strict=True)) | {i: init[i] for i in fixed}
        return [*(values[i] for i in range(loop.num_carry)), *out[len(moving) :]]

    consts = [*bound.consts, *(init[i] for i in fixed)]
    return Rewritten(BoundLoop(slim, consts, [init[i] for i in moving], bound.xs), undo)


def unroll(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Small steps are unrolled on a GPU, unless the user chose how."""
    loop = dataclasses.replace(bound.loop, unroll=costs.unrolls(bound.loop))
    return Rewritten(dataclasses.replace(bound, loop=loop))


PASSES: tuple[Pass, ...] = (
    drop_invariant_carries,
    drop_accumulators,
    split_concatenated,
    hoist,
    merge,
    unroll,
)


def gains(loop: Loop, costs: Costs) -> bool:
    """Whether any pass has a reason to change the loop."""
    moves = [*accumulators(loop, costs)[1], *stages(loop, costs).decisions]
    return any(moves) or costs.unrolls(loop) != loop.unroll


def rewrite(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Run all passes: the loop that is left, how to undo all of them, and all their decisions."""
    undos: list[Callable[[list[Any]], list[Any]]] = []
    decisions: list[Decision] = []
    for each in PASSES:
        rewritten = each(bound, costs)
        bound = rewritten.bound
        undos.append(rewritten.undo)
        decisions += rewritten.decisions

    def undo(out: list[Any]) -> list[Any]:
        for each in reversed(undos):
            out = each(out)
        return out

    return Rewritten(bound, undo, tuple(decisions))
