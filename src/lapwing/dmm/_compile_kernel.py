"""A recurrent stage of a batch of machines as two kernels of a GPU: one through all cycles forwards, one backwards.

As a loop of XLA every cycle is a few kernels, and starting them takes longer than what they do. Here a lane of a warp
is a machine that goes through all cycles alone: nothing is exchanged, the state stays in registers, and the weights,
which every cycle reads again, in the cache of the multiprocessor. Everything is written out number by number
(`_compile_lanes`). The kernel backwards computes the derivatives of the functions itself, from the inputs that the one
forwards has kept; only the gradient of the weights is a product over all cycles after it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from ._compile_lanes import check_lanes, in_lanes

LANES = 32

Arrays = dict[int, jax.Array]
Shapes = dict[int, jax.ShapeDtypeStruct]


class Kernels:
    """The kernels of one recurrent stage: `up(inputs, numbers, counts)` of arrays whose last axis is the machines."""

    def __init__(
        self,
        up: Callable[[Arrays, list[jax.Array], list[jax.Array]], Arrays],
        weights: Arrays,
        start: Arrays,
        outside: Arrays,
        numbers: list[jax.Array],
        counts: list[jax.Array],
        interpreted: bool = False,
    ):
        """Raises `LanesError` for functions that cannot be written out."""
        self.interpreted = interpreted
        self.cycles = len(next(iter([*outside.values(), *numbers, *counts]), ()))
        self.machines = next(iter(weights.values())).shape[-1]
        outputs = {c: _one(x.shape, x.dtype) for c, x in start.items()}
        self.inputs = {
            c: _one((outputs[c].shape[0], matrix.shape[1], 1), matrix.dtype) for c, matrix in weights.items()
        }
        known = [[_one(x.shape[1:], x.dtype) for x in some] for some in (numbers, counts)]
        self.forward = jax.make_jaxpr(up)(self.inputs, *known)

        def back(inputs: Arrays, numbers: Any, counts: Any, outputs_bar: Arrays) -> Any:
            return jax.vjp(lambda i, n: up(i, n, counts), inputs, numbers)[1](outputs_bar)

        self.backward = jax.make_jaxpr(back)(self.inputs, *known, outputs)
        self.outputs, self.numbers = outputs, known[0]
        check_lanes(self.forward)
        check_lanes(self.backward)

    def forwards(
        self, weights: Arrays, start: Arrays, outside: Arrays, numbers: Any, counts: Any
    ) -> tuple[Arrays, Arrays]:
        """The outputs at the beginning of each cycle, and the inputs of each cycle."""

        def cycles(lanes: "_Lanes", given: Any, made: Any) -> None:
            weights, start, outside, known = given
            seen, kept = made

            def cycle(now: Any, state: list[Any]) -> list[Any]:
                outputs = _unflat(state, self.outputs)
                inputs = {c: _product(outputs[c], lanes, ref) for c, ref in weights.items()}
                for c, ref in outside.items():
                    inputs[c] = inputs[c] + lanes.read(ref, now)
                for c in outputs:
                    lanes.write(seen[c], outputs[c], now)
                for c in inputs:
                    lanes.write(kept[c], inputs[c], now)
                given = [*inputs.values(), *(lanes.read(ref, now) for ref in known)]
                return lanes.flat(in_lanes(self.forward, *given), self.outputs)

            first = lanes.flat([lanes.read(ref) for ref in start.values()], self.outputs)
            jax.lax.fori_loop(0, self.cycles, cycle, first)

        made = (self._over_time(self.outputs), self._over_time(self.inputs))
        return self._call(cycles, (weights, start, outside, [*numbers, *counts]), made)

    def backwards(
        self, weights: Arrays, inputs: Arrays, numbers: Any, counts: Any, errors: Arrays
    ) -> tuple[Arrays, list[jax.Array], Arrays]:
        """The errors of the inputs, of the numbers and of the start."""

        def cycles(lanes: "_Lanes", given: Any, made: Any) -> None:
            weights, inputs, known, errors = given
            inputs_bar, numbers_bar, start_bar = made

            def cycle(done: Any, state: list[Any]) -> list[Any]:
                now = self.cycles - 1 - done
                known_now = [lanes.read(ref, now) for ref in (*inputs.values(), *known)]
                found = in_lanes(self.backward, *known_now, *_unflat(state, self.outputs).values())
                of_inputs = dict(zip(self.inputs, found[: len(inputs)], strict=True))
                for c, ref in inputs_bar.items():
                    lanes.write(ref, of_inputs[c], now)
                for ref, bar in zip(numbers_bar, found[len(inputs) :], strict=True):
                    lanes.write(ref, bar, now)
                back = {c: lanes.read(ref, now) for c, ref in errors.items()}
                for c, ref in weights.items():
                    back[c] = back[c] + _product(of_inputs[c], lanes, ref, transposed=True)
                return lanes.flat(list(back.values()), self.outputs)

            nothing = [np.zeros(x.shape, x.dtype) for x in self.outputs.values()]
            last = jax.lax.fori_loop(0, self.cycles, cycle, lanes.flat(nothing, self.outputs))
            for c, bar in _unflat(last, self.outputs).items():
                lanes.write(start_bar[c], bar)

        of_start = {c: self._of_machines(x.shape, x.dtype) for c, x in self.outputs.items()}
        made = (self._over_time(self.inputs), self._over_time(self.numbers), of_start)
        return self._call(cycles, (weights, inputs, [*numbers, *counts], errors), made)

    def _over_time(self, arrays: Any) -> Any:
        return jax.tree.map(lambda x: self._of_machines((self.cycles, *x.shape), x.dtype), arrays)

    def _of_machines(self, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*shape[:-1], self.machines + -self.machines % LANES), dtype)

    def _call(self, body: Callable[..., None], given: Any, made: Any) -> Any:
        """Runs a kernel body on references to the arrays, a block of machines in each program of the grid."""
        leaves, tree = jax.tree.flatten(given)
        shapes, made_tree = jax.tree.flatten(made)

        def kernel(*refs: Any) -> None:
            lanes = _Lanes(pl.ds(pl.program_id(0) * LANES, LANES))
            body(
                lanes,
                jax.tree.unflatten(tree, refs[: len(leaves)]),
                jax.tree.unflatten(made_tree, refs[len(leaves) :]),
            )

        extra = -self.machines % LANES
        padded = [jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, extra)]) if extra else x for x in leaves]
        run = pl.pallas_call(
            kernel,
            out_shape=shapes,
            grid=((self.machines + extra) // LANES,),
            interpret=self.interpreted,
            compiler_params=None if self.interpreted else _one_warp(),
        )
        found = jax.tree.unflatten(made_tree, run(*padded))
        return jax.tree.map(lambda x: x[..., : self.machines], found) if extra else found


class _Lanes:
    """Reads and writes the lanes of one block of machines."""

    def __init__(self, block: Any):
        self.block = block

    def read(self, ref: Any, *time: Any) -> np.ndarray:
        """An array of lanes, of the shape of one machine."""
        found = np.empty((*ref.shape[len(time) : -1], 1), object)
        for place in np.ndindex(found.shape[:-1]):
            found[(*place, 0)] = ref[(*time, *place, self.block)]
        return found

    def write(self, ref: Any, values: np.ndarray, *time: Any) -> None:
        for place in np.ndindex(values.shape[:-1]):
            ref[(*time, *place, self.block)] = _spread(values[(*place, 0)], ref.dtype)

    def flat(self, arrays: Sequence[np.ndarray], like: Shapes) -> list[jax.Array]:
        """What a loop carries."""
        types = [x.dtype for x in like.values()]
        return [
            _spread(number, dtype)
            for array, dtype in zip(arrays, types, strict=True)
            for number in array.ravel()
        ]


def _spread(number: Any, dtype: Any) -> jax.Array:
    return number if np.shape(number) == (LANES,) else jnp.full(LANES, number, dtype)


def _unflat(numbers: Sequence[Any], like: Shapes) -> dict[int, np.ndarray]:
    rest, found = iter(numbers), {}
    for c, x in like.items():
        found[c] = np.empty(x.shape, object)
        for place in np.ndindex(x.shape):
            found[c][place] = next(rest)
    return found


def _product(values: np.ndarray, lanes: _Lanes, matrix: Any, transposed: bool = False) -> np.ndarray:
    """Values [keys, from, 1] times a block of the matrix [from, to], or [keys, to, 1] times its transpose."""
    sources, targets = matrix.shape[:2][:: -1 if transposed else 1]
    made = np.empty((len(values), targets, 1), object)
    for to in range(targets):
        row = [matrix[(*((to, i) if transposed else (i, to)), lanes.block)] for i in range(sources)]
        for key in range(len(values)):
            terms = (values[key, i, 0] * row[i] for i in range(sources))
            made[key, to, 0] = functools.reduce(lambda a, b: a + b, terms)
    return made


def _one(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """The shape for one machine."""
    return jax.ShapeDtypeStruct((*shape[:-1], 1), dtype)


def _one_warp() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=1, num_stages=1)
