"""Many machines of one wiring at once: different starts, rates or pruning, one program.

Parameters are [machines, parameters]. Inside, the machines come last and are taken in blocks: on a CPU a
block is as wide as keeps its arrays in the cache, and its gradient is taken before the next block begins; on
a GPU there is one block.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ._activation import MachineError

if TYPE_CHECKING:
    from ._compile import Program

CPU_BLOCK = 32


class Population:
    """`machines` machines of a compiled program, side by side."""

    def __init__(self, program: "Program", machines: int):
        if not isinstance(machines, int) or machines < 1:
            raise MachineError(
                f"a population has a whole number of machines, 1 or more, but got {machines!r}"
            )
        self.program, self.machines = program, machines
        self.block = min(machines, CPU_BLOCK) if jax.default_backend() == "cpu" else machines

    def random_starts(self, key: jax.Array, spread: float) -> jax.Array:
        """The program's start with every soft parameter drawn anew for each machine, normal with this spread."""
        draws = spread * jax.random.normal(key, (self.machines, len(self.program.start)))
        return jnp.where(self.program.soft, draws, self.program.start)

    def answers(self, params: jax.Array) -> jax.Array:
        """The answers of every machine: [machines, cycles, fields].

        >>> import jax.numpy as jnp
        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> twins = program.population(2)
        >>> twins.answers(jnp.stack([program.start, 0 * program.start]))[:, -1].tolist()
        [[1.0, 0.0], [0.0, 0.0]]
        """
        return self._by_block(lambda values: jnp.moveaxis(self._run(values), -1, 0), params)

    def losses(self, params: jax.Array, targets: jax.Array, *, skip: int = 0) -> jax.Array:
        """The loss of every machine, as `Program.loss` gives that of one; all have the same targets.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> targets = program.answers(program.start)
        >>> program.population(2).losses(jnp.stack([program.start, 0 * program.start]), targets).tolist()
        [0.0, 1.0]
        """
        errors = self.answers(params) - jnp.asarray(targets)[None]
        return jnp.sum(errors[:, skip:] ** 2, axis=(1, 2))

    def value_and_grad(self, loss: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        """A function of the parameters that gives every machine's loss and its gradient, like `jax.value_and_grad`.

        `loss(params, answers, *others)` is written for one machine, with its parameters and its answers,
        [cycles, fields]; what else the function is given has the machines in front, and `loss` gets its machine's part.

        >>> import jax, jax.numpy as jnp
        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> def loss(params, answers, weight):
        ...     return jnp.sum((answers - 1) ** 2) + weight * jnp.sum(jnp.abs(params))
        >>> population = program.population(3)
        >>> starts = population.random_starts(jax.random.key(0), 0.5)
        >>> values, gradients = population.value_and_grad(loss)(starts, jnp.array([0.0, 0.1, 0.2]))
        >>> values.shape, gradients.shape
        ((3,), (3, 11))
        """

        def of_block(params: jax.Array, *others: Any) -> Any:
            def total(turned: jax.Array) -> Any:
                answers = self._run(turned)
                found = jax.vmap(loss, (-1, -1) + (0,) * len(others))(turned, answers, *others)
                values = found[0] if has_aux else found
                return jnp.sum(values), found

            (_, found), gradient = jax.value_and_grad(total, has_aux=True)(params)
            return found, gradient.T

        return lambda params, *others: self._by_block(of_block, params, *others)

    def _run(self, params: jax.Array) -> jax.Array:
        program = self.program
        fixed = program.start.astype(params.dtype)[:, None]
        return program.run_many(jnp.where(program.soft[:, None], params, fixed))

    def _by_block(self, function: Callable[..., Any], params: jax.Array, *others: Any) -> Any:
        """`function(params [parameters, block], *others)`, block after block."""
        expected = (self.machines, len(self.program.paths))
        if jnp.shape(params) != expected:
            raise MachineError(
                f"expected parameters of the shape {expected}, one row per machine, but got {jnp.shape(params)}; "
                "population.random_starts(key, spread) gives such an array"
            )
        if self.block == self.machines:
            return function(params.T, *others)
        short = -self.machines % self.block

        def in_blocks(x: jax.Array) -> jax.Array:
            # The last block is filled up with machines that are then forgotten.
            x = jnp.concatenate([x, x[:short]]) if short else x
            return x.reshape(-1, self.block, *x.shape[1:])

        blocks = jax.tree.map(in_blocks, (params, *others))
        made = jax.lax.map(lambda block: function(block[0].T, *block[1:]), blocks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: self.machines], made)
