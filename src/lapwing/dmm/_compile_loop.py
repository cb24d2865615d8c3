"""The loop through a knot of a machine, with a derivative of its own.

In every cycle the inputs are `down(weights, outputs) + outside`, and the outputs are `up(inputs, settled)`,
each a dict of arrays by class of keys. The weights are the same in every cycle; `outside` and `settled` are
what was computed for all cycles before.

Its derivative is again such a loop, but a linear one: the tangents of the inputs are `down(weights, tangents
of the outputs)` plus what comes from outside, now also from the weights' own tangents, for all cycles at
once; and those of the outputs are a linear function of them, whose coefficients are found for all cycles at
once. Transposed by jax, this is back-propagation in which the loop holds nothing but the product with the
weights and a few multiplications, and the gradient of the weights is one product after it.
`lapwing.loops.scan` does the same for any loop; knowing the form of this one saves about a third of the time
(docs/performance-dmm.md).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ._compile_products import weighed, weighed_in_loop

# A cycle is a handful of small kernels there, and a loop of them waits between its turns (docs/performance-dmm.md).
UNROLLED_ON_GPU = 4

Arrays = dict[int, jax.Array]
Up = Callable[[Arrays, Any], Arrays]  # (inputs, settled) -> outputs


def knot_loop(up: Up, weights: Arrays, start: Arrays, outside: Arrays, settled: Any, cycles: int) -> Arrays:
    """The outputs that stand at the beginning of each cycle, stacked."""

    unroll = UNROLLED_ON_GPU if jax.default_backend() == "gpu" else 1

    def down(weights: Arrays, outputs: Arrays) -> Arrays:
        return {c: weighed_in_loop(outputs[c], matrix) for c, matrix in weights.items()}

    def values(weights: Any, start: Any, outside: Any, settled: Any) -> tuple[Any, Any]:
        def cycle(outputs: Any, given: Any) -> tuple[Any, Any]:
            from_outside, known = given
            inputs = _plus(down(weights, outputs), from_outside)
            return up(inputs, known), (outputs, inputs)

        return jax.lax.scan(cycle, start, (outside, settled), length=cycles, unroll=unroll)[1]

    @jax.custom_jvp
    def run(weights: Any, start: Any, outside: Any, settled: Any) -> Any:
        return values(weights, start, outside, settled)[0]

    def tangents(primals: Any, given: Any) -> tuple[Any, Any]:
        weights, _, _, settled = primals
        weights_dot, start_dot, outside_dot, settled_dot = given
        outputs, inputs = values(*primals)
        from_weights = {c: weighed(outputs[c], _dense(matrix)) for c, matrix in weights_dot.items()}
        entering = _plus(from_weights, jax.tree.map(_dense, outside_dot))
        moves = [not isinstance(leaf, SymbolicZero) for leaf in jax.tree.leaves(settled_dot)]

        def linear_up(inputs: Any, settled: Any) -> Any:
            leaves, tree = jax.tree.flatten(settled)

            def on_moving(inputs: Any, moving: list[Any]) -> Any:
                rest = iter(moving)
                mixed = [next(rest) if m else leaf for leaf, m in zip(leaves, moves, strict=True)]
                return up(inputs, jax.tree.unflatten(tree, mixed))

            return jax.linearize(
                on_moving, inputs, [leaf for leaf, m in zip(leaves, moves, strict=True) if m]
            )[1]

        steps = jax.vmap(linear_up)(inputs, settled)
        settled_dots = [leaf for leaf, m in zip(jax.tree.leaves(settled_dot), moves, strict=True) if m]

        def cycle(outputs_dot: Any, now: Any) -> tuple[Any, Any]:
            step, from_outside, known = now
            inputs_dot = _plus(down(weights, outputs_dot), from_outside)
            return step(inputs_dot, known), outputs_dot

        xs = (steps, entering, settled_dots)
        first = jax.tree.map(_dense, start_dot)
        return outputs, jax.lax.scan(cycle, first, xs, length=cycles, unroll=unroll)[1]

    run.defjvp(tangents, symbolic_zeros=True)
    return run(weights, start, outside, settled)


def _plus(inputs: Arrays, more: Arrays) -> Arrays:
    return {c: x + more[c] if c in more else x for c, x in inputs.items()}


def _dense(tangent: Any) -> Any:
    if not isinstance(tangent, SymbolicZero):
        return tangent
    zero: Any = tangent
    return jnp.zeros(zero.shape, zero.dtype)
