"""The loop through a recurrent stage of a machine, with its own derivative.

In every cycle the inputs are `down(weights, outputs) + outside`, and the outputs `up(inputs, partials)`, each a dict of
arrays by class of keys. The weights are the same in every cycle; `outside` and `partials` were computed for all
cycles before.

The derivative is a linear loop of the same form. The tangents of the inputs are `down(weights, tangents of the
outputs)` plus what comes from outside and from the weights' own tangents, computed for all cycles at once. The tangents
of the outputs are a linear function of those, whose coefficients are computed for all cycles at once too. Transposed by
jax, this is backpropagation in which the loop holds only the product with the weights and a few multiplications, and
the gradient of the weights is one product after it. `lapwing.loops.scan` does the same for any loop; using the form of
this one saves about a third of the time (docs/performance-dmm.md).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from lapwing.loops import small_scan

from ._compile_products import combine_step, product

# On a GPU a cycle is a few small kernels, and most of the time goes into starting them (docs/performance-dmm.md).
GPU_UNROLL = 4

Arrays = dict[int, jax.Array]
Up = Callable[[Arrays, Any], Arrays]  # (inputs, partials) -> outputs


def recurrent_loop(
    up: Up, weights: Arrays, start: Arrays, outside: Arrays, partials: Any, cycles: int
) -> Arrays:
    """The outputs at the beginning of each cycle, stacked."""

    unroll = GPU_UNROLL if jax.default_backend() == "gpu" else 1

    def down(weights: Arrays, outputs: Arrays) -> Arrays:
        return {c: combine_step(outputs[c], matrix) for c, matrix in weights.items()}

    def values(weights: Any, start: Any, outside: Any, partials: Any) -> tuple[Any, Any]:
        def cycle(outputs: Any, given: Any) -> tuple[Any, Any]:
            from_outside, known = given
            inputs = _plus(down(weights, outputs), from_outside)
            return up(inputs, known), (outputs, inputs)

        return small_scan(cycle, start, (outside, partials), length=cycles, unroll=unroll)[1]

    @jax.custom_jvp
    def run(weights: Any, start: Any, outside: Any, partials: Any) -> Any:
        return values(weights, start, outside, partials)[0]

    def tangents(primals: Any, given: Any) -> tuple[Any, Any]:
        weights, _, _, partials = primals
        weights_dot, start_dot, outside_dot, partials_dot = given
        outputs, inputs = values(*primals)
        from_weights = {c: product(outputs[c], _dense(matrix)) for c, matrix in weights_dot.items()}
        entering = _plus(from_weights, jax.tree.map(_dense, outside_dot))
        moves = [not isinstance(leaf, SymbolicZero) for leaf in jax.tree.leaves(partials_dot)]

        def linear_up(inputs: Any, partials: Any) -> Any:
            leaves, tree = jax.tree.flatten(partials)

            def on_moving(inputs: Any, moving: list[Any]) -> Any:
                rest = iter(moving)
                mixed = [next(rest) if m else leaf for leaf, m in zip(leaves, moves, strict=True)]
                return up(inputs, jax.tree.unflatten(tree, mixed))

            return jax.linearize(
                on_moving, inputs, [leaf for leaf, m in zip(leaves, moves, strict=True) if m]
            )[1]

        steps = jax.vmap(linear_up)(inputs, partials)
        partial_dots = [leaf for leaf, m in zip(jax.tree.leaves(partials_dot), moves, strict=True) if m]

        def cycle(outputs_dot: Any, now: Any) -> tuple[Any, Any]:
            step, from_outside, known = now
            inputs_dot = _plus(down(weights, outputs_dot), from_outside)
            return step(inputs_dot, known), outputs_dot

        xs = (steps, entering, partial_dots)
        first = jax.tree.map(_dense, start_dot)
        return outputs, small_scan(cycle, first, xs, length=cycles, unroll=unroll)[1]

    run.defjvp(tangents, symbolic_zeros=True)
    return run(weights, start, outside, partials)


def _plus(inputs: Arrays, more: Arrays) -> Arrays:
    return {c: x + more[c] if c in more else x for c, x in inputs.items()}


def _dense(tangent: Any) -> Any:
    if not isinstance(tangent, SymbolicZero):
        return tangent
    zero: Any = tangent
    return jnp.zeros(zero.shape, zero.dtype)
