"""`scan` and `accelerate`: the public functions, and how a loop is rewritten from beginning to end.

A loop comes as a `scan` equation, from `jax.lax.scan` itself: so its meaning, its checks and its error messages are
jax's own. Calls inside its step are inlined, the memory policy cuts it into segments (`_memory`), the passes rewrite it
(`_passes`), and what is left runs with a faster derivative (`_defer`). With `rewrite="never"` the equation runs as it
came.
"""

import contextlib
import contextvars
import dataclasses
import functools
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.core
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jax.extend.core import primitives as p
from jaxtyping import Array, PyTree, Shaped

from lapwing import jaxprs
from lapwing.jaxprs import Loop, interpret, into_calls, loop_of
from lapwing.loops._bound import BoundLoop
from lapwing.loops._costs import Costs, Rewrite
from lapwing.loops._counters import is_known_integer
from lapwing.loops._decisions import left_alone, record
from lapwing.loops._defer import differentiable, jvp, kept_by_step
from lapwing.loops._errors import LoopError
from lapwing.loops._hoist import hoist
from lapwing.loops._indexed import rows_to_xs
from lapwing.loops._known import is_checkpointed, unknown, unknown_inputs, unknown_operations, unknown_types
from lapwing.loops._memory import (
    LoopSizes,
    MemoryLike,
    MemoryPolicy,
    Save,
    in_segments,
    planned,
    policy_of,
)
from lapwing.loops._passes import gains
from lapwing.loops._passes import rewrite as run_passes
from lapwing.loops._small import bind_small, may_be_small, stays_small


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: PyTree,
    xs: PyTree[Shaped[Array, "steps ..."]] | None = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    *,
    memory: MemoryLike = "save",
    rewrite: Rewrite = "auto",
) -> tuple[PyTree, PyTree[Shaped[Array, "steps ..."]]]:
    """A drop-in `jax.lax.scan` whose gradient is faster.

    It works under `jit`, `grad`, `vmap`, forward mode and nested in itself. A loop that holds something the rewriting
    does not know (an explicit sharding, a ref, a custom_vjp, somebody's own primitive) runs exactly as
    `jax.lax.scan` runs it, and `explain` says so.

    **Arguments**

    - `f`, `init`, `xs`, `length`, `reverse`, `unroll`, `_split_transpose`: as for `jax.lax.scan`. On a GPU a small
      step is unrolled by 4 where `unroll` is 1.
    - `memory`: what the forward loop keeps for the backward loop, a `lapwing.loops.MemoryPolicy` or its short form.
      `"save"`: all it needs. An int k: every k-th carry, and the steps between are recomputed. `"sqrt"`: the k that
      needs least memory. `"nested"`: segments of segments, for memory that grows with the logarithm of the length.
      `("budget", bytes)`: the fastest of these that fits. Results are the same.
    - `rewrite`: `"auto"` moves a computation out of the loop where its shape says that this pays, `"always"` wherever
      it is possible, `"never"` leaves the loop as it is. `explain` shows what is moved and why.

    **Returns** the last carry and the stacked outputs, as `jax.lax.scan` does.

    **Raises** what `jax.lax.scan` raises, and a LoopError (a ValueError) for an unknown `memory` or `rewrite`, or
    for a budget that no policy fits.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> def loss(w, xs):
    ...     def step(h, x):
    ...         h = jnp.tanh(h @ w + x)
    ...         return h, h
    ...     last, hs = lw.scan(step, jnp.zeros((2, 3)), xs)
    ...     return jnp.sum(last)
    >>> jax.grad(loss)(jnp.eye(3), jnp.ones((5, 2, 3))).shape
    (3, 3)
    """
    options = _options(memory, rewrite)

    def plain(init, xs):
        return jax.lax.scan(
            f, init, xs, length=length, reverse=reverse, unroll=unroll, _split_transpose=_split_transpose
        )

    if _left_to_jax() or _split_transpose or unknown_inputs((init, xs)) or _unchanged(options):
        return plain(init, xs)
    traced = _traced(plain, init, xs)
    return plain(init, xs) if traced is None else _run_traced(*traced, (init, xs), options)


def accelerate(
    fn: Callable[..., Any], *, memory: MemoryLike = "save", rewrite: Rewrite = "auto"
) -> Callable[..., Any]:
    """The same function with every `jax.lax.scan` in it replaced by `scan`, whoever wrote it.

    This includes loops inside `jit`, `cond`, `checkpoint`, `vmap` and other loops, `fori_loop` with a static number of
    steps, and loops that are already a gradient: both `grad(accelerate(loss))` and `accelerate(grad(loss))` work, the
    first with more freedom to move things. Left as they are: loops inside functions with custom derivatives, inside
    `while_loop`, inside a checkpoint with a policy, and inside a `shard_map` that checks how values vary.

    **Arguments**

    - `fn`: any function of pytrees; leaves that are not arrays are static.
    - `memory`, `rewrite`: as for `scan`.

    **Returns** a function with the arguments and results of `fn`.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> def loss(w, xs):
    ...     step = lambda h, x: (jnp.tanh(h @ w + x), None)
    ...     return jnp.sum(jax.lax.scan(step, jnp.zeros((2, 3)), xs)[0])
    >>> faster = jax.jit(jax.grad(lw.accelerate(loss)))
    >>> faster(jnp.eye(3), jnp.ones((5, 2, 3))).shape
    (3, 3)
    """
    options = _options(memory, rewrite)

    @functools.wraps(fn)
    def accelerated(*args, **kwargs):
        if _left_to_jax() or _unchanged(options):
            return fn(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_array = [
            isinstance(leaf, jax.Array | np.ndarray | np.generic | float | complex) for leaf in leaves
        ]

        def on_arrays(arrays):
            given = iter(arrays)
            full = [next(given) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, full)
            return fn(*args, **kwargs)

        arrays = [x for x, array in zip(leaves, is_array, strict=True) if array]
        return _run_traced(*jax.make_jaxpr(on_arrays, return_shape=True)(arrays), (arrays,), options)

    return accelerated


def _left_to_jax() -> bool:
    """Whether a setting of jax asks for loops as they are.

    Under `jax.disable_jit` a step sees numbers, one at a time. The policies of jax's new remat (`jax_remat3`) look at
    equations before these are differentiated, and would see a single one for a whole loop.
    """
    return any(getattr(jax.config, name, False) for name in ("jax_disable_jit", "jax_remat3"))


@dataclasses.dataclass(frozen=True)
class Options:
    """How loops are rewritten."""

    memory: MemoryPolicy
    rewrite: Rewrite

    @property
    def costs(self) -> Costs:
        """Those of the present platform: to ask for it starts jax's backend, so not before a loop runs."""
        return Costs(self.rewrite, jax.default_backend())


def _options(memory: MemoryLike, rewrite: Rewrite) -> Options:
    if rewrite not in ("auto", "always", "never"):
        raise LoopError(f"rewrite must be 'auto', 'always' or 'never', not {rewrite!r}")
    return Options(policy_of(memory), rewrite)


_as_written: contextvars.ContextVar[bool] = contextvars.ContextVar("as_written", default=False)


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """In here every loop runs as it was written: what `explain` compares with.

    The mark on the trace keeps jax from reusing a jitted function traced in here outside.
    """
    token = _as_written.set(True)
    try:
        with set_xla_metadata(lapwing="as_written"):
            yield
    finally:
        _as_written.reset(token)


def _unchanged(options: Options) -> bool:
    """Whether every loop runs as it was written."""
    return _as_written.get() or (options.rewrite == "never" and options.memory == Save())


def _traced(fn: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any] | None:
    """`fn` as a jaxpr with the shapes of its results; None where jax refuses a loop (or a type in it) that it may run.

    What the user's own step raises is raised. Other errors are jax's to report, from a call of its own.
    """
    try:
        return jax.make_jaxpr(fn, return_shape=True)(*args)
    except Exception as error:
        if any(_is_users(frame) for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise
        return None


def _is_users(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").split(".")[0] not in (
        "jax",
        "lapwing",
        "contextlib",
        "functools",
    )


def _run_traced(closed: core.ClosedJaxpr, shape: Any, args: tuple[Any, ...], options: Options) -> Any:
    """A traced function on its arguments, its loops rewritten."""
    values = [*closed.consts, *jax.tree.leaves(args)]
    out = interpret(closed.jaxpr, values, into_calls(_rewrite_scans(options)))
    return jax.tree.unflatten(jax.tree.structure(shape), out)


def _rewrite_scans(options: Options) -> jaxprs.Rule:
    """The rule that runs each `scan` rewritten."""

    def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
        if eqn.primitive is not p.scan_p:
            return None
        loop, closed_over = loop_of(eqn)
        if _stays(loop, options):
            return None
        if _is_small(loop, options):
            return bind_small(eqn, inputs)
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
        loop.length < 2
        or bool(unknown_types(loop))
        or (bool(why) and options.memory == Save())
        or (carries_nothing and options.rewrite == "auto")
    )


def _in_plain_segments(loop: Loop, values: jaxprs.Values, options: Options) -> list[Any]:
    """A loop that no pass may touch, cut into the segments of its memory policy."""
    bound = BoundLoop(loop, *loop.split_inputs(values))
    return in_segments(bound, planned(options.memory, _sizes(loop, options.costs)), BoundLoop.run)


def _is_small(loop: Loop, options: Options) -> bool:
    """Whether jax's own gradient is best: of a small loop on a CPU, one kernel each way."""
    plain = options.rewrite == "auto" and options.memory == Save()
    return plain and options.costs.platform == "cpu" and stays_small(loop)


@functools.lru_cache(maxsize=256)
def _compiled(loop: Loop, options: Options) -> Callable[..., list[Any]]:
    """Outside any trace the rewritten loop is compiled as a whole, once per loop, as `jax.lax.scan` does."""
    return jax.jit(lambda *values: run_rewritten(loop, values, options))


def run_rewritten(loop: Loop, values: jaxprs.Values, options: Options) -> list[Any]:
    """Run a loop: the last carry and the stacked outputs, flat.

    Its value and its gradient are planned apart, since almost all that is gained is gained in the gradient: a loop
    that is not differentiated runs as it came, unless a pass has a reason to change it.
    """

    if options.rewrite != "never":
        loop = may_be_small(loop)

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
    loop, rule = bound.loop, into_calls(_rewrite_scans(Options(Save(), costs.rewrite)))
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
