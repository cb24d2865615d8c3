"""`scan`, `accelerate`: the public functions, and the order in which a loop is rewritten.

A loop comes as a `scan` equation, from `jax.lax.scan` itself: so its meaning, its checks and its error messages are
jax's own. It is opened (`_loop`), cut into segments where memory is short (`_memory`), relieved of everything that
need not loop (`_accumulate`, `_forward`), its sibling products are merged (`_merge`), and what is left gets a faster
derivative (`_defer`). With `rewrite="never"` the equation runs as it came.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend import core

from lapwing.loops import _jaxprs as jaxprs
from lapwing.loops._accumulate import without_accumulators
from lapwing.loops._costs import Costs, Rewrite
from lapwing.loops._defer import differentiable, what_a_step_keeps
from lapwing.loops._forward import run_staged, stages, without_invariant_carries
from lapwing.loops._loop import Loop, Values, bind, loop_of, opened, run_inlined
from lapwing.loops._memory import Memory, checked_memory, in_segments, plan_for, sizes
from lapwing.loops._merge import merged, siblings
from lapwing.loops._notes import rewriting_off


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    memory: Memory = "save",
    rewrite: Rewrite = "auto",
) -> tuple[Any, Any]:
    """A drop-in `jax.lax.scan` whose gradient is faster.

    Same arguments, same results, same errors; works under `jit`, `grad`, `vmap`, forward mode and nested in itself.

    **memory** says what the forward loop keeps for the backward loop. `"save"`: all it needs. An int k: only every
    k-th carry, the steps between being computed again. `"sqrt"`: the k that needs least. `"binomial"`: segments of
    segments, for memory that grows with the logarithm of the length. `("budget", bytes)`: the fastest of these that
    fits. Results are the same.

    **rewrite**: `"auto"` moves a computation out of the loop where its shape says that this pays, `"always"` wherever
    it can be moved, `"never"` leaves the loop as it is. `explain` tells what was done and why. On a GPU a small step
    is also unrolled, unless `unroll` says how.

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
        return jax.lax.scan(f, init, xs, length=length, reverse=reverse, unroll=unroll)

    return _rewritten(plain, options)(init, xs)


def accelerate(
    fn: Callable[..., Any], *, memory: Memory = "save", rewrite: Rewrite = "auto"
) -> Callable[..., Any]:
    """The same function with every `jax.lax.scan` in it replaced by `scan`, whoever wrote it.

    Loops inside `jit` and inside other loops count, and loops that are already a gradient: both
    `grad(accelerate(loss))` and `accelerate(grad(loss))` work, the first with more freedom to move things. Loops
    inside functions with custom derivatives, `remat` or `cond` are left as they are.

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
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_array = [
            isinstance(leaf, jax.Array | np.ndarray | np.generic | float | complex) for leaf in leaves
        ]

        def on_arrays(arrays):
            given = iter(arrays)
            full = [next(given) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, full)
            return fn(*args, **kwargs)

        return _rewritten(on_arrays, options)([x for x, array in zip(leaves, is_array, strict=True) if array])

    return accelerated


Options = tuple[Memory, Costs]


def _options(memory: Memory, rewrite: Rewrite) -> Options:
    if rewrite not in ("auto", "always", "never"):
        raise ValueError(f"rewrite must be 'auto', 'always' or 'never', not {rewrite!r}")
    return checked_memory(memory), Costs(rewrite, jax.default_backend())


def _rewritten(fn: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """`fn` on arrays, traced, its loops rewritten."""

    def call(*args):
        closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        values = [*closed.consts, *jax.tree.leaves(args)]
        out = run_inlined(
            jaxprs.without_constvars(closed.jaxpr), values, functools.partial(_run_scan, options)
        )
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return call


def _run_scan(options: Options, eqn: core.JaxprEqn, values: Values) -> list[Any]:
    memory, costs = options
    if rewriting_off.get() or (costs.rewrite == "never" and memory == "save"):
        return bind(eqn, values)
    loop, closed_over = loop_of(eqn)
    values = [*closed_over, *values]
    if any(isinstance(value, jax.core.Tracer) for value in values):
        return optimized(loop, values, options)
    return _compiled(loop, options)(*values)


@functools.lru_cache(maxsize=256)
def _compiled(loop: Loop, options: Options) -> Callable[..., list[Any]]:
    """Outside any trace the rewritten loop is compiled as a whole, once per loop, as `jax.lax.scan` does."""
    return jax.jit(lambda *values: optimized(loop, values, options))


def optimized(loop: Loop, values: Values, options: Options) -> list[Any]:
    """Run a loop, rewritten: the last carry and the stacked outputs, flat."""
    memory, costs = options
    consts, init, xs = loop.three(values)
    if loop.length < 2 or loop.jaxpr.effects:
        return loop.run(consts, init, xs)
    # Inner loops are rewritten as they are met; only the outermost is cut into segments.
    loop, consts = opened(loop, consts, functools.partial(_run_scan, ("save", costs)))
    if memory != "save":
        plan = plan_for(memory, loop.length, sizes(loop, _kept_by_a_step(loop, costs)))
        return in_segments(loop, consts, init, xs, plan, functools.partial(_segment, costs=costs))
    return _segment(loop, consts, init, xs, costs=costs)


def _segment(loop: Loop, consts: Values, init: Values, xs: Values, *, costs: Costs) -> list[Any]:
    if costs.rewrite == "never" or loop.length < 2:
        return loop.run(consts, init, xs)
    loop, consts, init, restore = without_invariant_carries(loop, consts, init)
    if loop.num_carry == 0 and costs.rewrite == "auto":
        # A loop that carries nothing could be one batch; whoever wrote it as a loop wanted the memory of one step.
        return restore(loop.run(consts, init, xs))
    loop, init, add_up = without_accumulators(loop, init, costs)
    plan = stages(loop, costs)
    out = run_staged(loop, plan, consts, init, xs, functools.partial(_merged, costs=costs))
    return restore(add_up(out))


def _kept_by_a_step(loop: Loop, costs: Costs) -> list[jaxprs.Atom]:
    """What the gradient keeps of each step: what was computed ahead of the loop, and what the loop itself keeps."""
    met: list[Loop] = []

    def meet(inner: Loop, consts: Values, init: Values, xs: Values) -> list[Any]:
        met.append(inner)
        return inner.run(consts, init, xs)

    plan = stages(loop, costs)
    jaxprs.trace(
        lambda *values: run_staged(loop, plan, *loop.three(values), meet),
        [v.aval for v in [*loop.consts, *loop.carry]] + [loop.stacked(v) for v in loop.xs],
    )
    (inner,) = met
    hoisted = [v for v in inner.xs if v not in loop.xs]
    return [*hoisted, *what_a_step_keeps(inner, costs)]


def _merged(loop: Loop, consts: Values, init: Values, xs: Values, *, costs: Costs) -> list[Any]:
    groups = siblings(loop, costs)
    if groups:
        loop, consts = merged(loop, consts, groups)
    loop = dataclasses.replace(loop, unroll=costs.unrolling(loop))
    return differentiable(loop, costs)(*consts, *init, *xs)
