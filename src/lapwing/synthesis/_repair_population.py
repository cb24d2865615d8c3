"""Broken machines of one structure as arrays, trained as one population by one compiled program.

A row is a machine with the weights of all links that it may have: its own, and those that training may add
(`with_candidates`). Most links of a broken machine are right, so what is penalized is not a weight but its *change*.
After each step of Adam every change shrinks by a constant part of the step, and those that are smaller become exactly
zero. Adam's steps have the same size whatever the scale of the gradient, so one penalty fits all machines.

The loss is the mean of log(1 + error²): a broken accumulator can be wrong by 10⁹, and the direction is what counts.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from lapwing import trees
from lapwing.dmm import Machine, MachineError

from ._damage import with_candidates, with_links
from ._examples import Examples

B1, B2 = 0.9, 0.98
EXACT = 1e-6

Rows = Float[np.ndarray, "rows leaves"]
Mask = Bool[np.ndarray, "rows leaves"]


class Population:
    """Machines of the same neurons, compiled for the same examples. `broken` has a row for each of them, `soft` says
    which leaves are trained, and every call takes and returns `rows` rows."""

    def __init__(self, machines: Sequence[Machine], examples: Examples, rows: int):
        self.whole = _union(machines)
        self.rows = rows
        program = examples.program(self.whole)
        targets = jnp.asarray(examples.expected_of(program.fields))
        self.soft, self.paths = program.soft, program.paths
        self.broken = np.array([self._row(machine) for machine in machines], np.float32)

        def loss(params: jax.Array, answers: jax.Array) -> tuple[jax.Array, jax.Array]:
            errors = answers.reshape(targets.shape) - targets
            # On a CPU a largest number may leave out what is no number: of nothing else it is -infinity.
            worst = jnp.where(jnp.all(jnp.isfinite(errors)), jnp.max(jnp.abs(errors)), jnp.inf)
            return jnp.mean(jnp.log1p(errors**2)), worst

        self._gradient = program.value_and_grad(loss, has_aux=True)
        self._train = jax.jit(self._steps)
        self._worst = jax.jit(lambda params: jax.vmap(loss)(params, program.answers(params))[1])

    def train(
        self,
        weights: Rows,
        broken: Rows,
        free: Mask,
        steps: int,
        rate: Float[np.ndarray, " rows"],
        end: float,
        penalty: Float[np.ndarray, " rows"],
    ) -> tuple[Rows, Float[np.ndarray, " rows"]]:
        """Trains the `free` weights of each row, at a learning rate that falls from `rate` to `end` times that.

        **Returns**: the weights, and the largest |error| of each row (infinite where it is not a number).
        """
        count = len(weights)
        columns = (each.astype(np.float32)[:, None] for each in (rate, penalty))
        given = (weights, broken, free, *columns)
        filled = [np.resize(each, (self.rows, each.shape[1])) for each in given]
        trained, worst = self._train(*filled, steps, end)
        return np.array(trained)[:count], np.asarray(worst)[:count]

    def errors(self, machines: Sequence[Machine]) -> Float[np.ndarray, " machines"]:
        """The largest |error| of each machine, at most `rows` of them (infinite where it is not a number)."""
        rows = np.array([self._row(machine) for machine in machines], np.float32)
        worst = self._worst(np.resize(rows, (self.rows, rows.shape[1])))
        return np.asarray(worst)[: len(machines)]

    def machine(self, original: Machine, weights: Float[np.ndarray, " leaves"]) -> Machine:
        """The machine with these weights, and without the links that are zero and that it did not have."""
        old = trees.paths(original.values)
        given = {path: float(leaf) for path, leaf in zip(self.paths, weights, strict=True)}
        # A weight that was not changed keeps all its digits.
        kept = {
            path: old[path] if path in old and leaf == np.float32(old[path]) else leaf
            for path, leaf in given.items()
            if leaf or (path in old and not old[path]) or path in original.hard
        }
        return with_links(original, kept)

    def _row(self, machine: Machine) -> list[float]:
        leaves = trees.paths(machine.values)
        return [leaves.get(path, 0.0) for path in self.paths]

    def _steps(
        self,
        weights: jax.Array,
        broken: jax.Array,
        free: jax.Array,
        rate: jax.Array,
        penalty: jax.Array,
        steps: jax.Array,
        end: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        def step(i: jax.Array, state: Any) -> Any:
            weights, mean, square = state
            (losses, worst), gradient = self._gradient(weights)
            finite = jnp.isfinite(losses) & jnp.all(jnp.isfinite(gradient), axis=1)
            gradient = jnp.where(finite[:, None] & free, gradient, 0.0)
            mean, square = B1 * mean + (1 - B1) * gradient, B2 * square + (1 - B2) * gradient**2
            scaled = (mean / (1 - B1 ** (i + 1))) / (jnp.sqrt(square / (1 - B2 ** (i + 1))) + 1e-8)
            now = rate * end ** (i / steps)
            change = weights - broken - now * scaled
            shrunk = jnp.sign(change) * jnp.maximum(jnp.abs(change) - now * penalty, 0.0)
            # A row without error stays: the penalty would make it wrong, and some machines do not come back.
            moved = broken + jnp.where(free, shrunk, weights - broken)
            return jnp.where(worst[:, None] < EXACT, weights, moved), mean, square

        zeros = jnp.zeros_like(weights)
        trained, _, _ = jax.lax.fori_loop(0, steps, step, (weights, zeros, zeros))
        return trained, self._gradient(trained)[0][1]


def _union(machines: Sequence[Machine]) -> Machine:
    """A machine with the candidate links of all."""
    if not machines:
        raise MachineError("there is no machine to repair; give at least one")
    first = machines[0]
    values: dict[trees.Path, Any] = {}
    for i, machine in enumerate(machines):
        fixed, other = ({path: trees.paths(m.values)[path] for path in m.hard} for m in (first, machine))
        if machine.neurons != first.neurons or fixed != other or machine.matrix_from != first.matrix_from:
            raise MachineError(
                f"machines that are repaired together have the same neurons and the same fixed values, but machine {i} "
                "has others than machine 0; repair it in a call of its own"
            )
        values |= trees.paths(with_candidates(machine).values)
    return with_links(first, values)
