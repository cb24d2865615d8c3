"""How a loop is rewritten, from its `scan` equation to what runs.

Calls inside its step are inlined, indexed rows become its xs (`_indexed`), the memory policy cuts it into segments
(`_memory`), the passes rewrite it (`_passes`), and what is left runs with a faster derivative (`_defer`). A loop that
is not differentiated, or that holds something unknown (`_known`), runs as it came. What is left of it may then be
lowered as one kernel (`_lowering`).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, into_calls, loop_of
from lapwing.loops._bound import BoundLoop
from lapwing.loops._costs import Costs, Rewrite, present_platform
from lapwing.loops._counters import is_known_integer
from lapwing.loops._decisions import left_alone, record
from lapwing.loops._defer import differentiable, jvp, kept_by_step
from lapwing.loops._hoist import hoist
from lapwing.loops._indexed import rows_to_xs
from lapwing.loops._known import is_checkpointed, unknown, unknown_operations, unknown_types
from lapwing.loops._marks import bind_marked, may_be_one_kernel
from lapwing.loops._memory import LoopSizes, MemoryPolicy, Save, in_segments, planned
from lapwing.loops._passes import gains
from lapwing.loops._passes import rewrite as run_passes
from lapwing.loops._small import stays_small


@dataclasses.dataclass(frozen=True)
class Options:
    """How loops are rewritten."""

    memory: MemoryPolicy
    rewrite: Rewrite

    @property
    def costs(self) -> Costs:
        """Those of the present platform."""
        return Costs(self.rewrite, present_platform())


def rewrite_scans(options: Options) -> jaxprs.Rule:
    """The rule that runs each `scan` rewritten."""

    def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
        if eqn.primitive is not p.scan_p:
            return None
        loop, closed_over = loop_of(eqn)
        small = _is_small(loop, options)
        if _stays(loop, options) or (small and any(map(jaxprs.holds_products, loop.eqns))):
            return bind_marked(eqn, inputs) if small else None
        values = [*closed_over, *inputs]
        if unknown_operations(loop):
            return _in_plain_segments(loop, values, options)
        if any(isinstance(value, jax.core.Tracer) for value in values):
            return run_rewritten(loop, values, options)
        return _compiled(loop, options)(*values)

    return rule


def _stays(loop: Loop, options: Options) -> bool:
    """Whether a loop runs as it came, whatever is asked of it."""
    carries_nothing = all(a is b for a, b in zip(loop.carry, loop.carry_out, strict=True))
    if why := unknown(loop):
        record(left_alone(loop, why))
    # A loop that carries nothing could be one batch, but its author chose the memory of one step.
    return (
        bool(unknown_types(loop))
        or loop.length < 2
        or (bool(why) and options.memory == Save())
        or (carries_nothing and options.rewrite == "auto")
    )


def _in_plain_segments(loop: Loop, values: jaxprs.Values, options: Options) -> list[Any]:
    """A loop that no pass may touch, cut into the segments of its memory policy."""
    bound = BoundLoop(loop, *loop.split_inputs(values))
    return in_segments(bound, planned(options.memory, _sizes(loop, options.costs)), BoundLoop.run)


def _is_small(loop: Loop, options: Options) -> bool:
    """Whether a loop can be one kernel on a CPU, and its gradient two.

    With products in it, jax's own gradient is the faster one; without, the rewritten one, if it keeps less.
    """
    if options.rewrite != "auto" or options.memory != Save() or unknown_types(loop):
        return False
    return options.costs.platform == "cpu" and stays_small(loop)


@functools.lru_cache(maxsize=256)
def _compiled(loop: Loop, options: Options) -> Callable[..., list[Any]]:
    """Outside any trace the rewritten loop is compiled as a whole, once per loop, as `jax.lax.scan` does."""

    def scan(*args):
        return run_rewritten(loop, args, options)

    scan.__qualname__ = "scan"  # in jax's messages it is called so, and its arguments are
    return jax.jit(scan)


def run_rewritten(loop: Loop, values: jaxprs.Values, options: Options) -> list[Any]:
    """Run a loop: the last carry and the stacked outputs, flat.

    Its value and its gradient are planned apart, since almost all that is gained is gained in the gradient: a loop
    that is not differentiated runs as it came, unless a pass has a reason to change it.
    """

    if options.rewrite != "never":
        loop = may_be_one_kernel(loop)

    @jax.custom_jvp
    def run(*inputs):
        return value(loop, inputs, options.costs.for_value(loop))

    # A counter's start is known now, and in the rule no longer when the loop was traced in between.
    known = {i: value for i, value in enumerate(values) if is_known_integer(value)}

    def for_gradient(*inputs):
        return _for_gradient(loop, options, *(known.get(i, value) for i, value in enumerate(inputs)))

    def rule(primals, tangents):
        return jvp(for_gradient, loop, primals, tangents)

    run.defjvp(rule, symbolic_zeros=True)
    return run(*values)


def value(loop: Loop, inputs: jaxprs.Values, costs: Costs) -> list[Any]:
    """The loop where no gradient is asked for."""
    bound = BoundLoop(loop, *loop.split_inputs(inputs))
    if not gains(loop, costs):
        return bound.run()
    rewritten = run_passes(_inlined(bound, costs), costs)
    return rewritten.undo(rewritten.bound.run())


def _for_gradient(loop: Loop, options: Options, *inputs: Any) -> list[Any]:
    """The loop in the form that is differentiated."""
    costs = options.costs
    bound = _inlined(BoundLoop(loop, *loop.split_inputs(inputs)), costs)
    segments = functools.partial(planned, options.memory)
    if is_checkpointed(bound.loop):
        record(left_alone(bound.loop, "jax.checkpoint says what is kept of a step"))
        return in_segments(bound, segments(_sizes(bound.loop, costs)), BoundLoop.run)
    by_row = rows_to_xs(bound, costs)
    record([*by_row.decisions, *costs.draws(by_row.bound.loop)])
    run = functools.partial(_run_passes, costs=costs)
    return by_row.undo(in_segments(by_row.bound, segments(_sizes(by_row.bound.loop, costs)), run))


def _inlined(bound: BoundLoop, costs: Costs) -> BoundLoop:
    """The same loop with nested calls inlined and inner loops rewritten; only the outermost is cut into segments."""
    loop, rule = bound.loop, into_calls(rewrite_scans(Options(Save(), costs.rewrite)))
    avals = [var.aval for var in loop.jaxpr.invars]
    jaxpr, closed_over = jaxprs.trace(lambda *values: interpret(loop.jaxpr, values, rule), avals)
    flat = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=loop.num_consts + len(closed_over))
    return BoundLoop(flat, [*closed_over, *bound.consts], bound.init, bound.xs)


def _run_passes(bound: BoundLoop, *, costs: Costs) -> list[Any]:
    if costs.rewrite == "never" or bound.loop.length < 2:
        return bound.run()
    rewritten = run_passes(bound, costs)
    record(rewritten.decisions)
    return rewritten.undo(differentiable(rewritten.bound.loop, costs)(*rewritten.bound.inputs))


def _sizes(loop: Loop, costs: Costs) -> LoopSizes:
    carry = sum(map(jaxprs.nbytes, loop.carry))
    stacked = sum(map(jaxprs.nbytes, [*loop.xs, *loop.ys]))
    return LoopSizes(loop.length, carry, stacked, lambda: _step_bytes(loop, costs))


def _step_bytes(loop: Loop, costs: Costs) -> int:
    """What the gradient needs of each step: what is computed before the loop, and what the loop itself keeps."""
    hoisted: list[Loop] = []

    def left_by_hoist(*values):
        hoisted.append(hoist(BoundLoop(loop, *loop.split_inputs(values)), costs).bound.loop)
        return ()

    avals = [var.aval for var in [*loop.consts, *loop.carry]] + [loop.stacked(var) for var in loop.xs]
    jaxprs.trace(left_by_hoist, avals)
    (inner,) = hoisted
    before = [var for var in inner.xs if var not in loop.xs]
    return sum(map(jaxprs.nbytes, [*before, *kept_by_step(inner, costs)]))
