"""Whether a loop becomes a kernel, with which plan, and if not, why.

A plan must be faster than the loop as XLA runs it, where each product is a kernel of its own, with the elementwise work
around it or another one for that, and launching it takes longer than what it does. Both are estimated, the loop with
care not to say too much: when in doubt it stays.
"""

import dataclasses
import hashlib
import json
import math
from typing import Any

import jax

from lapwing import jaxprs
from lapwing.core import format_bytes
from lapwing.jaxprs import Loop
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._plan import Gpu, plans, seconds
from lapwing.loops.persistent._prepare import Prepared, prepare
from lapwing.loops.persistent._shares import Shares

KERNEL_VERSION = 1
"""Of what a plan means: another one makes what was tuned before worthless."""
# Of an H200: seconds to launch a kernel inside a loop, bytes a second from its cache and from its memory, and
# multiplications with additions a second.
LAUNCH, CACHE, MEMORY, MULTIPLY = 2.4e-6, 3e12, 3e12, 3e14
# Before the first step: launches to bring the arrays into the form that blocks share, and weights to where they stay.
START = 20e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """A loop that fits, the plans for it, and the best of them; or why it stays a loop."""

    why: str = ""
    prepared: Prepared | None = None
    plans: tuple[Shares, ...] = ()
    plan: Shares | None = None


def choose(loop: Loop, gpu: Gpu) -> Choice:
    """What the model says."""
    try:
        prepared = prepare(loop)
    except DoesNotFitError as error:
        return Choice(str(error))
    stages = prepared.stages
    if not (found := tuple(plans(stages, gpu))):
        rows, weights = (
            math.prod(stages.rows),
            sum(jaxprs.nbytes(product.weight) for product in stages.products),
        )
        why = f"no plan fits for {rows} rows, {stages.units} units and {format_bytes(weights)} of weights"
        return Choice(why, prepared)
    kernel, today = _kernel_seconds(prepared, found[0]), _loop_seconds(prepared)
    if kernel >= today:
        why = f"it would not pay: {1e6 * kernel:.3g} µs, and {1e6 * today:.3g} as a loop"
        return Choice(why, prepared, found)
    return Choice("", prepared, found, found[0])


def _kernel_seconds(prepared: Prepared, plan: Shares) -> float:
    loop = prepared.stages.loop
    # What goes in and comes out is copied into another form, there and back.
    copied = sum(map(jaxprs.nbytes, [*loop.xs, *loop.ys])) * loop.length
    return START + loop.length * seconds(prepared.stages, plan) + 2 * copied / MEMORY


def _loop_seconds(prepared: Prepared) -> float:
    stages = prepared.stages
    launches = 1 + sum(len(stage.products) + len(stage.sums) for stage in stages.stages)
    total = launches * LAUNCH
    for product in stages.products:
        work = jaxprs.flops(product.eqn) / 2 / MULTIPLY
        total += max(jaxprs.nbytes(product.weight) / CACHE, work)
    return total * stages.loop.length


def structs(loop: Loop) -> list[jax.ShapeDtypeStruct]:
    """The shapes of the inputs of a loop."""
    once = [jax.ShapeDtypeStruct(jaxprs.shape(var), jaxprs.dtype(var)) for var in [*loop.consts, *loop.carry]]
    return [*once, *map(loop.stacked, loop.xs)]


def key_of(prepared: Prepared, kind: str) -> str:
    """A name for a loop on a kind of device: the same in every process."""
    loop = prepared.stages.loop
    about: list[Any] = [str(each) for each in (prepared.before, loop.jaxpr, prepared.after)]
    about += [loop.length, loop.reverse, loop.unroll, loop.num_consts, loop.num_carry]
    about += [kind, jax.__version__, KERNEL_VERSION]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
