"""Products and loops for a batch of machines; the machines are the last axis of every array.

The vector units of a CPU then run over machines: a product is written as a sum of elementwise products, and every
function of a neuron is elementwise. On a CPU, XLA must not fuse the two, or it computes the product again for each
place where a function reads it. Only a condition that it cannot decide prevents that (`unfused`). A function picks what
it reads of its cycle inside of that condition; outside, it would be copied. The gradient is written by hand, so that
the loop backwards has the same two parts.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ._compile_lanes import LanesError
from ._compile_products import product

Arrays = dict[int, jax.Array]

# For blocks of 32 machines fewer rows do not become vector instructions, and more are slower.
ROWS_AT_ONCE = 4


class Style(NamedTuple):
    """What is written in another way for another processor (docs/performance-dmm.md).

    **Attributes**: `cycles` of one iteration of a loop; `weights`: how the gradient of the weights is summed up;
    `fused`: whether XLA may compute a product again for each of its readers; `kernels`: whether a loop is one kernel
    forwards and one backwards where it can be, and whether Pallas only interprets them.
    """

    cycles: int
    weights: Literal["rows", "sum", "product"]
    fused: bool
    kernels: Literal["none", "compiled", "interpreted"] = "none"


CPU = Style(cycles=1, weights="rows", fused=False)
GPU = Style(cycles=4, weights="product", fused=True)


def style() -> Style:
    return CPU if jax.default_backend() == "cpu" else GPU


def combine(outputs: jax.Array, matrix: jax.Array) -> jax.Array:
    """Outputs [..., keys, from, machines] times a block of the matrix [from, to, machines]."""
    total = outputs[..., 0, None, :] * matrix[0]
    for i in range(1, len(matrix)):
        total = total + outputs[..., i, None, :] * matrix[i]
    return total


def combine_back(errors: jax.Array, matrix: jax.Array) -> jax.Array:
    """Errors [..., keys, to, machines] times the transposed block, without transposing it in memory."""
    total = errors[..., 0, None, :] * matrix[:, 0]
    for i in range(1, matrix.shape[1]):
        total = total + errors[..., i, None, :] * matrix[:, i]
    return total


@jax.custom_vjp
def combine_all(stream: jax.Array, outputs: jax.Array | None, matrix: jax.Array) -> jax.Array:
    """Known outputs [cycles, keys, from], which all machines share, and computed ones, times a block of the matrix."""
    known = stream.shape[-1]
    parts = [stream[..., i, None, None] * matrix[i] for i in range(known)]
    if outputs is not None:
        parts += [combine(outputs, matrix[known:])]
    return functools.reduce(jnp.add, parts)


def _forwards(stream: jax.Array, outputs: jax.Array | None, matrix: jax.Array) -> tuple[jax.Array, Any]:
    return combine_all(stream, outputs, matrix), (stream, outputs, matrix)


def _backwards(kept: Any, errors: jax.Array) -> tuple[None, jax.Array | None, jax.Array]:
    stream, outputs, matrix = kept

    def products(outputs: jax.Array | None, errors: jax.Array) -> tuple[jax.Array | None, jax.Array]:
        from_stream = jnp.tensordot(stream, errors, ((0, 1), (0, 1)), precision="highest")
        if outputs is None:
            return None, from_stream
        back = combine_back(errors, matrix[stream.shape[-1] :])
        return back, jnp.concatenate([from_stream, _contracted(outputs, errors)])

    return None, *unfused(products, matrix, outputs, errors)


combine_all.defvjp(_forwards, _backwards)


def _contracted(outputs: jax.Array, errors: jax.Array) -> jax.Array:
    """The gradient of a block of the matrix, [from, to, machines]: outputs times errors, over cycles and keys."""
    outputs, errors = (x.reshape(-1, *x.shape[-2:]) for x in (outputs, errors))
    if style().weights == "sum":
        return jnp.sum(outputs[:, :, None] * errors[:, None], axis=0)
    if style().weights == "product":
        left, right = jnp.transpose(outputs, (2, 1, 0)), jnp.transpose(errors, (2, 0, 1))
        return jnp.moveaxis(product(left, right), 0, 2)

    def add_rows(first: Any, total: jax.Array, rows: int = ROWS_AT_ONCE) -> jax.Array:
        # Rows are indexed one by one: XLA does not vectorize over a slice of several rows.
        for k in range(rows):
            total = total + outputs[first + k][:, None] * errors[first + k]
        return total

    blocks, rest = divmod(len(outputs), ROWS_AT_ONCE)
    nothing = jnp.zeros((outputs.shape[1], *errors.shape[1:]), outputs.dtype)
    total = jax.lax.fori_loop(0, blocks, lambda i, total: add_rows(i * ROWS_AT_ONCE, total), nothing)
    return add_rows(blocks * ROWS_AT_ONCE, total, rest)


def unfused(function: Callable[..., Any], values: jax.Array, *inputs: Any) -> Any:
    """`function(*inputs)`, not fused with what comes before and after it. `values` is any array that is not a
    compile-time constant."""
    if style().fused:
        return function(*inputs)
    bits = jnp.asarray(jnp.sum(values.ravel()[:1] != 0), jnp.int32)
    shapes = jax.eval_shape(function, *inputs)
    return jax.lax.cond(
        bits >= 0, function, lambda *_: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes), *inputs
    )


def _through_time(cycle: Callable[[Any, jax.Array], Any], start: Any, order: range) -> tuple[Any, Any]:
    """`state = cycle(state, now)` for each cycle in order: the last state, and the state before each cycle.

    `scan` would need a second counter for the time, and every small operation in a loop body costs. On a GPU several
    cycles are one iteration, and write what they keep at once.
    """
    at_once = style().cycles

    def several(done: Any, state: Any, before: Any, count: int) -> tuple[Any, Any]:
        states = []
        for i in range(count):
            states.append(state)
            state = cycle(state, order.start + order.step * (done + i))
        first = order.start + order.step * (done if order.step > 0 else done + count - 1)
        stacked = jax.tree.map(lambda *each: jnp.stack(each), *states[:: order.step])
        write = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        return state, jax.tree.map(write, before, stacked)

    def body(loop: tuple[jax.Array, Any, Any]) -> tuple[jax.Array, Any, Any]:
        done, state, before = loop
        return done + at_once, *several(done, state, before, at_once)

    before = jax.tree.map(lambda x: jnp.zeros((len(order), *x.shape), x.dtype), start)
    whole = len(order) - len(order) % at_once
    loop = (jnp.int32(0), start, before)
    done, state, before = jax.lax.while_loop(lambda loop: loop[0] < whole, body, loop)
    return several(done, state, before, len(order) - whole) if whole < len(order) else (state, before)


def _in_kernels(
    up: Callable[..., Arrays], weights: Arrays, start: Arrays, outside: Arrays, numbers: Any, counts: Any
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    from ._compile_kernel import Kernels  # Importing Pallas takes a second.

    kernels = Kernels(up, weights, start, outside, numbers, counts, style().kernels == "interpreted")

    def forwards(
        weights: Arrays, start: Arrays, outside: Arrays, numbers: Any, counts: Any
    ) -> tuple[Arrays, Any]:
        seen, inputs = kernels.forwards(weights, start, outside, numbers, counts)
        return seen, (weights, seen, inputs, list(outside), numbers, counts)

    def backwards(kept: Any, errors: Arrays) -> tuple[Any, ...]:
        weights, seen, inputs, reached, numbers, counts = kept
        inputs_bar, numbers_bar, start_bar = kernels.backwards(weights, inputs, numbers, counts, errors)
        weights_bar = {c: _contracted(seen[c], inputs_bar[c]) for c in weights}
        return weights_bar, start_bar, {c: inputs_bar[c] for c in reached}, numbers_bar, None

    return forwards, backwards


def _at(now: jax.Array, arrays: Any) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, now, keepdims=False), arrays)


def recurrent_loop(
    up: Callable[[Any, Any], Arrays],
    weights: Arrays,
    start: Arrays,
    outside: Arrays,
    partials: Any,
    cycles: int,
) -> Arrays:
    """As `_compile_loop.recurrent_loop`, for a batch of machines."""
    leaves, tree = jax.tree.flatten(partials)
    is_number = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]
    counts = [leaf for leaf, number in zip(leaves, is_number, strict=True) if not number]
    numbers = [leaf for leaf, number in zip(leaves, is_number, strict=True) if number]

    def apply(inputs: Arrays, numbers: list[jax.Array], counts: list[jax.Array]) -> Arrays:
        rest, whole = iter(numbers), iter(counts)
        return up(
            inputs, jax.tree.unflatten(tree, [next(rest) if number else next(whole) for number in is_number])
        )

    def down(outputs: Arrays, weights: Arrays, outside: Arrays) -> Arrays:
        inputs = {c: combine(outputs[c], matrix) for c, matrix in weights.items()}
        return {c: x + outside[c] if c in outside else x for c, x in inputs.items()}

    def forwards(
        weights: Arrays, start: Arrays, outside: Arrays, numbers: Any, counts: Any
    ) -> tuple[Arrays, Any]:
        some = next(iter(weights.values()))

        def functions(inputs: Arrays, now: jax.Array, given: Any) -> Arrays:
            return apply(inputs, *_at(now, given))

        def cycle(outputs: Arrays, now: jax.Array) -> Arrays:
            inputs = down(outputs, weights, _at(now, outside))
            return unfused(functions, some, inputs, now, (numbers, counts))

        seen = _through_time(cycle, start, range(cycles))[1]
        return seen, (weights, seen, outside, numbers, counts)

    def backwards(kept: Any, errors: Arrays) -> tuple[Any, ...]:
        weights, seen, outside, numbers, counts = kept
        some = next(iter(weights.values()))
        inputs = down(seen, weights, outside)

        # The coefficients of the functions' derivatives are computed for all cycles at once, outside of the loop.
        derivatives = jax.vmap(lambda i, n, k: jax.vjp(lambda i, n: apply(i, n, k), i, n)[1])(
            inputs, numbers, counts
        )

        def derivative(outputs_bar: Arrays, now: jax.Array, derivatives: Any) -> Arrays:
            return _at(now, derivatives)(outputs_bar)[0]

        def cycle(outputs_bar: Arrays, now: jax.Array) -> Arrays:
            inputs_bar = unfused(derivative, some, outputs_bar, now, derivatives)
            back_through = {c: combine_back(inputs_bar[c], matrix) for c, matrix in weights.items()}
            return {c: e + back_through[c] if c in back_through else e for c, e in _at(now, errors).items()}

        nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), errors)
        start_bar, outputs_bar = _through_time(cycle, nothing, range(cycles)[::-1])
        # The loop stores the errors of the outputs only; all others follow from them for all cycles at once.
        of_all = jax.vmap(lambda derivative, bar: derivative(bar))
        inputs_bar, numbers_bar = unfused(of_all, some, derivatives, outputs_bar)
        weights_bar = {c: _contracted(seen[c], inputs_bar[c]) for c in weights}
        return weights_bar, start_bar, {c: inputs_bar[c] for c in outside}, numbers_bar, None

    if style().kernels != "none":
        with contextlib.suppress(LanesError):
            forwards, backwards = _in_kernels(apply, weights, start, outside, numbers, counts)
    run = jax.custom_vjp(lambda *args: forwards(*args)[0])
    run.defvjp(forwards, backwards)
    return run(weights, start, outside, numbers, counts)
