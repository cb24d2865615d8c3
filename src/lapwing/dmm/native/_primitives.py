"""The run of a machine and its derivative as operations of jax.

Both are native code on one CPU. Everywhere else, and for all that native code does not know (forward mode, second
derivatives, other devices, `jax.export`), they are what XLA makes of the machine's stages.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from lapwing.dmm._compile_lanes import LanesError

from ._engine import target_of
from ._loop import derivative_text, run_text
from ._merge import Merged

# LLVM takes a time that grows faster than a function's lines.
MOST_LINES = 30_000


class Native:
    """A machine's loop in native code for one type of numbers, and `staged`, its answers in jax.

    Raises a `LanesError` if it cannot be native code."""

    def __init__(self, merged: Merged, dtype: Any, staged: Callable[..., jax.Array]):
        self.merged, self.staged, self.loop = merged, staged, merged.loop(dtype)
        self.streams = [name for name in self.loop.operands() if name.startswith("stream")]
        self._texts = {"run": run_text(self.loop, "function"), "back": derivative_text(self.loop, "function")}
        if max(text.count("\n") for text in self._texts.values()) > MOST_LINES:
            raise LanesError(f"native code of more than {MOST_LINES} lines takes long to compile")

    def run(self, values: jax.Array, streams: Mapping[int, Any]) -> jax.Array:
        """The answers, [cycles, fields]."""
        known = self.merged.streams(streams, self.loop.dtype)
        return self.merged.answers(RUN.bind(values, *(known[name] for name in self.streams), native=self)[0])

    def call(self, which: str, given: list[jax.Array]) -> list[jax.Array]:
        """Calls the function, which is compiled when it is first asked for."""
        made = self.loop.results() if which == "run" else self.loop.derivatives()
        shapes = [jax.ShapeDtypeStruct(shape, jnp.dtype(self.loop.dtype)) for shape in made.values()]
        return [*jax.ffi.ffi_call(target_of(self._texts[which], len(given), len(made)), shapes)(*given)]

    def operands(self, values: jax.Array, streams: tuple[jax.Array, ...]) -> dict[str, jax.Array]:
        found = self.merged.operands(values) | dict(zip(self.streams, streams, strict=True))
        return {name: found[name] for name in self.loop.operands()}

    def in_jax(self, values: jax.Array, streams: tuple[jax.Array, ...]) -> jax.Array:
        """The answers of the loop from those of the stages."""
        known = self.merged.staged_streams(dict(zip(self.streams, streams, strict=True)), values.dtype)
        return self.merged.answered_of(self.staged(values, known))


# In native code -------------------------------------------------------------------------------------------------


def _run_natively(values: jax.Array, *streams: jax.Array, native: Native) -> list[jax.Array]:
    return native.call("run", [*native.operands(values, streams).values()])


def _back_natively(values: jax.Array, *others: jax.Array, native: Native) -> list[jax.Array]:
    count = len(native.streams)
    operands = native.operands(values, others[:count])
    read = [x for name, x in operands.items() if not name.startswith("start")]
    bars = dict(zip(native.loop.derivatives(), native.call("back", [*read, *others[count:]]), strict=True))
    to_operands, from_operands = jax.vjp(native.merged.operands, values)
    return [*from_operands({name: bars[name] for name in to_operands})]


# The same in jax ------------------------------------------------------------------------------------------------


def _run(values: jax.Array, *streams: jax.Array, native: Native) -> list[jax.Array]:
    """The answers; nothing is kept."""
    kept = [jnp.zeros(shape, native.loop.dtype) for shape in native.loop.kept().values()]
    return [native.in_jax(values, streams), *kept]


def _tangent(values: jax.Array, *others: jax.Array, native: Native) -> list[jax.Array]:
    """That of the answers, from the values, the streams, what was kept, and the tangent of the values."""
    streams = others[: len(native.streams)]
    return [jax.jvp(lambda values: native.in_jax(values, streams), (values,), (others[-1],))[1]]


def _back(values: jax.Array, *others: jax.Array, native: Native) -> list[jax.Array]:
    """The derivative of the values, from these, the streams, what was kept, and the derivative of the answers."""
    streams = others[: len(native.streams)]
    return [*jax.vjp(lambda values: native.in_jax(values, streams), values)[1](others[-1])]


# The operations -------------------------------------------------------------------------------------------------


def _operation(
    name: str, in_jax: Callable[..., list[jax.Array]], natively: Callable[..., list[jax.Array]] | None = None
) -> core.Primitive:
    """An operation that is lowered as native code on one CPU, and differentiated and lowered as its form in jax if
    nothing else is said."""
    primitive = core.Primitive(f"dmm_{name}")
    primitive.multiple_results = True

    @functools.partial(jax.jit, static_argnames="native")
    def alone(*given: jax.Array, native: Native) -> list[jax.Array]:
        return primitive.bind(*given, native=native)

    def shapes(*given: Any, native: Native) -> list[Any]:
        return [
            given[0].update(shape=x.shape, dtype=x.dtype, weak_type=False)
            for x in jax.eval_shape(functools.partial(in_jax, native=native), *given)
        ]

    def jvp(primals: Any, tangents: Any, *, native: Native) -> Any:
        return jax.jvp(
            functools.partial(in_jax, native=native),
            tuple(primals),
            tuple(map(ad.instantiate_zeros, tangents)),
        )

    def batch(given: Any, axes: Any, *, native: Native) -> Any:
        """One after the other: native code runs on one core."""
        is_batched = [axis is not None for axis in axes]
        moved = [jnp.moveaxis(x, axis, 0) for x, axis, b in zip(given, axes, is_batched, strict=True) if b]

        def one(some: list[jax.Array]) -> list[jax.Array]:
            rest = iter(some)
            each = [next(rest) if b else x for x, b in zip(given, is_batched, strict=True)]
            return primitive.bind(*each, native=native)

        found = lax.map(one, moved)
        return found, [0] * len(found)

    primitive.def_impl(alone)
    primitive.def_abstract_eval(shapes)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    plain = mlir.lower_fun(in_jax, multiple_results=True)
    mlir.register_lowering(primitive, plain)
    if natively is not None:
        compiled = mlir.lower_fun(natively, multiple_results=True)
        mlir.register_lowering(
            primitive,
            lambda ctx, *given, **params: (compiled if _is_one_cpu(ctx) else plain)(ctx, *given, **params),
            platform="cpu",
        )
    return primitive


def _is_one_cpu(ctx: mlir.LoweringRuleContext) -> bool:
    """Native code is for one device, and cannot be written to a file by `jax.export`."""
    module = ctx.module_context
    context = module.axis_context
    one = isinstance(context, mlir.ShardingContext) and context.num_devices == 1
    return one and not module.lowering_parameters.for_export


RUN = _operation("run", _run, _run_natively)
TANGENT = _operation("tangent", _tangent)
BACK = _operation("back", _back, _back_natively)


def _jvp_of_run(primals: Any, tangents: Any, *, native: Native) -> Any:
    answers, *kept = RUN.bind(*primals, native=native)
    no_tangents = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in kept]
    if type(tangents[0]) is ad.Zero:
        return [answers, *kept], [ad.Zero(jax.typeof(answers).to_tangent_aval()), *no_tangents]
    return [answers, *kept], [*TANGENT.bind(*primals, *kept, tangents[0], native=native), *no_tangents]


def _transpose_of_tangent(bars: Any, *given: Any, native: Native) -> Any:
    nothing = [None] * (len(given) - 1)
    if type(bars[0]) is ad.Zero:
        return [*nothing, None]
    return [*nothing, *BACK.bind(*given[:-1], bars[0], native=native)]


ad.primitive_jvps[RUN] = _jvp_of_run
ad.primitive_transposes[TANGENT] = _transpose_of_tangent
