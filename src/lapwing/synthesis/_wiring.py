"""The loss of several machines with different links, as array code.

The numbers of all machines are arrays [machines, leaves of the student], so that no shape changes: pruned links are
masked. The *wiring* is what is compiled: at first the student, for all machines; later, when it pays, each machine's
own links, which cost a fraction. It changes only at the end of a round.

Values and gradients are computed machine by machine in the forward pass, so that only one machine's arrays are alive at
a time. A machine with values that are not finite has no gradient and does not affect the others.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.dmm import Machine, Program

from ._examples import Examples

Error = Callable[[jax.Array], jax.Array]  # from the leaves of a machine to its mean error for a text
LOST = 1e9
FEW = 40  # Machines with at most this many links learn from all examples, and have to be right on them.


class Wirings:
    """A student, its examples, and the programs compiled so far. All machines learn from the first of the `examples`;
    the others are added when the machines are small."""

    def __init__(self, student: Machine, examples: Sequence[Examples], **options: Any):
        self.student, self.examples, self.options = student, examples, options
        self.paths = tuple(trees.paths(student.values))
        first = examples[0].program(student, **options)
        self.start, self.soft = np.asarray(first.start), first.soft
        self._whole, self._whole_differences = (of([(first, examples[0])]) for of in (error_of, residuals_of))
        self._losses: dict[bytes, Callable[..., Any]] = {}
        self._errors: dict[bytes, tuple[Error, Callable[..., Any]]] = {}

    def machine(self, leaves: np.ndarray, kept: np.ndarray) -> Machine:
        """The student with these numbers, without the pruned links."""
        given = zip(self.paths, leaves.tolist(), kept | ~self.soft, strict=True)
        return self.student.with_values(trees.from_paths({path: leaf for path, leaf, keep in given if keep}))

    def names(self, links: np.ndarray) -> list[str]:
        """The names of the leaves that are True."""
        return [_name(path) for path, chosen in zip(self.paths, links, strict=True) if chosen]

    def loss(self, wiring: np.ndarray, active: np.ndarray) -> Callable[..., Any]:
        """`loss(leaves, kept)`: the sum of the active machines' errors, and the error of each, 0 for the others. Equal
        wirings [machines, leaves] of the same active machines have the same function."""
        key = np.where(active[:, None], wiring, False).tobytes() + active.tobytes()
        if key not in self._losses:
            whole = wiring[active].all()
            each = _of_student(self._whole, active) if whole else self._of_own_links(wiring, active)
            self._losses[key] = _with_gradient(each)
        return self._losses[key]

    def errors(self, wiring: np.ndarray, leaves: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The errors of one machine of this wiring [leaves], for each way [ways, leaves] of keeping its links."""
        residuals = self.residuals(wiring)
        # One by one: these calls cost less than compiling a loop for each number of links.
        with np.errstate(over="ignore"):  # An error that is too large for a number is infinite.
            return np.array([np.sum(np.square(residuals(leaves, each))) for each in kept], np.float32)

    def residuals(self, wiring: np.ndarray) -> Callable[..., jax.Array]:
        """`residuals(leaves, kept)` of one machine of this wiring, whose squares sum up to its error."""
        return self._own(wiring)[1]

    def _of_own_links(self, wiring: np.ndarray, active: np.ndarray) -> Callable[..., Any]:
        errors = {k: self._own(wiring[k])[0] for k in map(int, np.flatnonzero(active))}

        def each(leaves: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
            found = {k: jax.value_and_grad(error)(leaves[k] * kept[k]) for k, error in errors.items()}
            zero = jnp.float32(0), jnp.zeros_like(leaves[0])
            rows = [found.get(k, zero) for k in range(len(leaves))]
            return jnp.stack([row[0] for row in rows]), jnp.stack([row[1] for row in rows])

        return each

    def _own(self, wiring: np.ndarray) -> tuple[Error, Callable[..., Any]]:
        key = wiring.tobytes()
        if key not in self._errors:
            if wiring.all():
                error, differences = self._whole, self._whole_differences
            else:
                here = np.flatnonzero(wiring | ~self.soft)
                machine = self.machine(self.start, wiring)
                is_small = np.count_nonzero(wiring & self.soft) <= FEW
                programs = [
                    (each.program(machine, **self.options), each)
                    for each in (self.examples if is_small else self.examples[:1])
                ]
                error = functools.partial(_of_some, error_of(programs), here)
                differences = functools.partial(_of_some, residuals_of(programs), here)
            self._errors[key] = error, jax.jit(lambda leaves, kept: differences(leaves * kept))
        return self._errors[key]


def _of_some(function: Error, here: np.ndarray, leaves: jax.Array) -> jax.Array:
    return function(leaves[here])


def error_of(programs: Sequence[tuple[Program, Examples]]) -> Error:
    """The mean over all texts of the squared errors, summed over the cycles, as a function of a machine's leaves."""
    expected = [(program, jnp.asarray(each.expected_of(program.fields))) for program, each in programs]
    count = sum(len(targets) for _, targets in expected)

    def error(leaves: jax.Array) -> jax.Array:
        return jnp.stack([program.loss(leaves, targets) for program, targets in expected]).sum() / count

    return error


def residuals_of(programs: Sequence[tuple[Program, Examples]]) -> Error:
    """The differences from the expected answers, scaled so that their squares sum up to the error."""
    expected = [(program, jnp.asarray(each.expected_of(program.fields))) for program, each in programs]
    scale = sum(len(targets) for _, targets in expected) ** -0.5

    def residuals(leaves: jax.Array) -> jax.Array:
        return jnp.concatenate([scale * (p.answers(leaves) - targets).ravel() for p, targets in expected])

    return residuals


def _of_student(error: Error, active: np.ndarray) -> Callable[..., Any]:
    one, here = jax.value_and_grad(error), np.flatnonzero(active)

    def each(leaves: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
        errors, gradients = jax.lax.map(lambda row: one(row[0] * row[1]), (leaves[here], kept[here]))
        return jnp.zeros(len(leaves)).at[here].set(errors), jnp.zeros_like(leaves).at[here].set(gradients)

    return each


def _with_gradient(each: Callable[..., Any]) -> Callable[..., Any]:
    def forwards(leaves: jax.Array, kept: jax.Array) -> Any:
        errors, gradients = each(leaves, kept)
        finite = jnp.isfinite(errors) & jnp.all(jnp.isfinite(gradients), axis=1)
        errors = jnp.where(finite, errors, LOST)
        return (jnp.sum(errors), errors), jnp.where(finite[:, None], gradients, 0.0) * kept

    def backwards(gradients: jax.Array, bars: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return gradients * bars[0], None

    loss = jax.custom_vjp(lambda leaves, kept: forwards(leaves, kept)[0])
    loss.defvjp(forwards, backwards)
    return loss


def _name(path: trees.Path) -> str:
    if path[0] == "matrix":
        return f"{path[1]}.{path[2]} ← {path[3]}.{path[4]}"
    return ".".join(path[1:])
