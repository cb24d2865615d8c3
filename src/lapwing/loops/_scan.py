"""`scan` and `accelerate`, the public functions.

A loop comes as a `scan` equation, from `jax.lax.scan` itself: so its meaning, its checks and its error messages are
jax's own. `_rewrite` has what becomes of it. With `rewrite="never"` the equation runs as it came.
"""

import contextlib
import contextvars
import functools
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jaxtyping import Array, PyTree, Shaped

from lapwing.jaxprs import interpret, into_calls
from lapwing.loops._costs import Rewrite
from lapwing.loops._errors import LoopError
from lapwing.loops._known import unknown_inputs
from lapwing.loops._memory import MemoryLike, Save, policy_of
from lapwing.loops._rewrite import Options, rewrite_scans


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
    cannot know (an explicit sharding, a ref, a custom_vjp, a cond of numbers, somebody's own primitive) runs exactly as
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
    if traced is None:
        return plain(init, xs)
    carry, ys = _run_traced(*traced, (init, xs), options)
    # An x of numpy that is passed on is an array of jax, as it is from `jax.lax.scan`.
    return carry, jax.tree.map(lambda y: y if _is_traced(y) else jnp.asarray(y), ys)


def accelerate(
    fn: Callable[..., Any], *, memory: MemoryLike = "save", rewrite: Rewrite = "auto"
) -> Callable[..., Any]:
    """The same function with every `jax.lax.scan` in it replaced by `scan`, whoever wrote it.

    This includes loops inside `jit`, `cond`, `checkpoint`, `vmap` and other loops, `fori_loop` with a static number of
    steps, and loops that are already a gradient: both `grad(accelerate(loss))` and `accelerate(grad(loss))` work, the
    first with more freedom to move things. Left as they are: loops inside functions with custom derivatives, inside
    `while_loop`, inside a checkpoint with a policy, and inside a `shard_map` that checks how values vary.

    **Arguments**

    - `fn`: any function of pytrees. Leaves that are not arrays, Python numbers among them, reach it as they are, and
      what it returns that is no array is returned as it is.
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
        is_array = list(map(_is_array, leaves))
        results = []

        def on_arrays(arrays):
            given = iter(arrays)
            full = [next(given) if array else leaf for leaf, array in zip(leaves, is_array, strict=True)]
            args, kwargs = jax.tree.unflatten(tree, full)
            results[:] = jax.tree.flatten(fn(*args, **kwargs))
            return list(filter(_is_traced, results[0]))

        arrays = [x for x, array in zip(leaves, is_array, strict=True) if array]
        out = iter(_run_traced(*jax.make_jaxpr(on_arrays, return_shape=True)(arrays), (arrays,), options))
        leaves, tree = results
        return jax.tree.unflatten(tree, [next(out) if _is_traced(leaf) else leaf for leaf in leaves])

    return accelerated


def _is_array(leaf: Any) -> bool:
    """Whether a leaf is an array of numbers or keys. A Python number is not: a function may branch on it."""
    is_numpy = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "MOSUm"
    return is_numpy or isinstance(leaf, jax.Array)


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.core.Tracer)


def _left_to_jax() -> bool:
    """Whether a setting of jax asks for loops as they are.

    Under `jax.disable_jit` a step sees numbers, one at a time. The policies of jax's new remat (`jax_remat3`) look at
    equations before these are differentiated, and would see a single one for a whole loop.
    """
    return any(getattr(jax.config, name, False) for name in ("jax_disable_jit", "jax_remat3"))


def _options(memory: MemoryLike, rewrite: Rewrite) -> Options:
    if rewrite not in ("auto", "always", "never"):
        raise LoopError(f"rewrite must be 'auto', 'always' or 'never', not {rewrite!r}")
    return Options(policy_of(memory), rewrite)


_as_written: contextvars.ContextVar[bool] = contextvars.ContextVar("as_written", default=False)


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """In here every loop runs as it was written: what `explain` compares with.

    The mark on the trace keeps jax from reusing a jitted function traced in here outside.

    >>> import lapwing as lw
    >>> with as_written():
    ...     last, _ = lw.scan(lambda h, x: (h + x, None), 0.0, jnp.arange(4.0))
    >>> float(last)
    6.0
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
    out = interpret(closed.jaxpr, values, into_calls(rewrite_scans(options)))
    return jax.tree.unflatten(jax.tree.structure(shape), out)
