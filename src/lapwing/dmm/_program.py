"""A compiled machine: functions of a flat vector of parameters, or of a matrix with one row per machine.

The vector has one entry for each leaf of `machine.values`, in sorted-key order: dead links too, since they count in a
regularization. Hard entries are there for the same reason, but their numbers are built into the program: it uses those
of the machine, whatever the vector says, and their gradient is zero.

Given a matrix, the program runs all machines in one batch, which costs a fraction of `jax.vmap` on a CPU: there the
batch is computed in blocks of machines whose arrays fit into the cache. On a GPU it is one block.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from lapwing import trees
from lapwing.trees import Path, Tree

from ._activation import MachineError
from ._compile_flat import Run
from ._growth import check_capacity
from ._layout_flow import Flow
from ._machine import Machine

CPU_BLOCK = 32


class Program:
    """A compiled machine, made by `compile`. All functions can be jitted, vmapped and differentiated.

    **Attributes**: `machine`; `cycles`; `paths`, the path in `machine.values` of each parameter; `fields` of the output
    neuron; `soft`, which parameters are trained; `start`, the parameters of the machine.
    """

    def __init__(
        self,
        machine: Machine,
        flow: Flow,
        cycles: int,
        run: Run,
        run_batch: Callable[[jax.Array], jax.Array],
    ):
        leaves = trees.paths(machine.values)
        self.machine = machine
        self.cycles = cycles
        self.paths = flow.paths
        self.fields = flow.fields
        self.soft = np.array([path not in machine.hard for path in leaves])
        self.start: Float[Array, " parameters"] = jnp.array(list(leaves.values()), jnp.result_type(float))
        self._watched = flow.watched
        self._run = run
        self._run_batch = run_batch  # [parameters, machines] -> [..., cycles, fields, machines]

    def answers(self, params: Float[Array, "*machines parameters"]) -> Float[Array, "... cycles fields"]:
        """Returns the input fields of the output neuron after each down stroke, as numbers.

        **Arguments**: `params`, a vector like `start`, or a matrix with one row per machine.

        **Returns**: [cycles, fields]; with an axis of texts before those if the machine was compiled for several texts,
        and an axis of machines before all others if `params` is a matrix.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> answers = jax.jit(program.answers)
        >>> program.fields, answers(program.start)[-1].tolist()
        (('dict-1', 'dict-2'), [1.0, 0.0])
        >>> answers(jnp.stack([program.start, 0 * program.start]))[:, -1].tolist()
        [[1.0, 0.0], [0.0, 0.0]]
        """
        if self._check_shape(params) == 2:
            return self._in_blocks(lambda values: jnp.moveaxis(self._batch_answers(values), -1, 0), params)
        return self._run(self._with_hard(params))[0]

    def watched(self, params: Float[Array, " parameters"]) -> dict[str, Tree]:
        """Returns the watched output fields, cycle by cycle: trees with [cycles] at the leaves.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.wave_machine(), cycles=3, watch=["self.result"])
        >>> row = jax.jit(program.watched)(program.start)["self.result"]["self"]["delta"]
        >>> {name: row[name]["result"].tolist() for name in row}
        {'update-1': [0.0, 0.0, 1.0], 'update-2': [1.0, 0.0, 0.0], 'update-3': [0.0, 1.0, 0.0]}
        """
        self._check_shape(params)
        seen = self._run(self._with_hard(params))[1]
        found: dict[str, dict[Path, jax.Array]] = {}
        for i, (name, field, path) in enumerate(self._watched):
            found.setdefault(f"{name}.{field}", {})[path] = seen[:, i]
        return {address: trees.from_paths(leaves) for address, leaves in found.items()}

    def born(self, params: Float[Array, " parameters"]) -> Int[Array, "... cycles"]:
        """Returns how many neurons that came to be during the run (`Machine.grow`) are there, cycle by cycle, and for
        each text if the machine was compiled for several.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.growing_machine(capacity=4), cycles=12)
        >>> jax.jit(program.born)(program.start).tolist()
        [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
        """
        self._check_shape(params)
        return self._run(self._with_hard(params))[2]

    def check_capacity(self, params: Float[Array, " parameters"]) -> None:
        """Raises a `MachineError` if more neurons come to be than the machine has room for; from that cycle on its
        answers are NaN. Not inside of `jax.jit`, where nothing can be raised."""
        counts = np.asarray(jax.jit(self.born)(params)).reshape(-1, self.cycles).max(0)
        for cycle, count in enumerate(counts.tolist(), start=1):
            check_capacity(self.machine, count, cycle)

    def loss(
        self,
        params: Float[Array, "*machines parameters"],
        targets: Float[Array, "... cycles fields"],
        *,
        skip: int = 0,
    ) -> Float[Array, "*machines"]:
        """Returns the sum of squared errors of all answers, without the first `skip` cycles; for each machine if
        `params` is a matrix.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> both = jnp.stack([program.start, 0 * program.start])
        >>> jax.jit(program.loss)(both, jnp.zeros((15, 2))).tolist()
        [1.0, 0.0]
        """
        machines = tuple(range(jnp.ndim(params) - 1))
        answers = self.answers(params)
        if jnp.shape(targets) != answers.shape[len(machines) :]:
            raise MachineError(
                f"expected targets of the shape {answers.shape[len(machines) :]}, a number for each cycle and field of "
                f"the output neuron, but they have the shape {jnp.shape(targets)}"
            )
        errors = (answers - jnp.expand_dims(jnp.asarray(targets), machines))[..., skip:, :]
        return jnp.sum(errors**2, axis=tuple(range(len(machines), errors.ndim)))

    def value_and_grad(self, loss: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        """Returns a function of a matrix of parameters that gives the loss and the gradient of every machine.

        It is `jax.vmap(jax.value_and_grad(...))`, except that a block of machines goes through loss and gradient
        before the next block starts, so its arrays stay in the cache of a CPU.

        **Arguments**: `loss(params, answers, *others)` for one machine, with its answers [cycles, fields]. The others
        have a leading axis of machines, like the parameters.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> def loss(params, answers, weight):
        ...     return jnp.sum((answers - 1) ** 2) + weight * jnp.sum(jnp.abs(params))
        >>> starts = program.random_params(jax.random.key(0), 0.5, machines=3)
        >>> step = jax.jit(program.value_and_grad(loss))
        >>> values, gradients = step(starts, jnp.array([0.0, 0.1, 0.2]))
        >>> values.shape, gradients.shape
        ((3,), (3, 11))
        """

        def of_block(params: jax.Array, *others: Any) -> Any:
            def total(turned: jax.Array) -> Any:
                answers = self._batch_answers(turned)
                found = jax.vmap(loss, (-1, -1) + (0,) * len(others))(turned, answers, *others)
                return jnp.sum(found[0] if has_aux else found), found

            (_, found), gradient = jax.value_and_grad(total, has_aux=True)(params)
            return found, gradient.T

        def of_all(params: Float[Array, "machines parameters"], *others: Any) -> Any:
            if self._check_shape(params) != 2:
                raise MachineError(
                    f"expected a matrix with one row per machine, but got shape {params.shape}"
                )
            return self._in_blocks(of_block, params, *others)

        return of_all

    def random_params(
        self, key: PRNGKeyArray, spread: float, machines: int | None = None
    ) -> Float[Array, "*machines parameters"]:
        """Returns `start` with every soft parameter drawn from a normal distribution of standard deviation `spread`;
        a matrix if `machines` is given."""
        shape = self.start.shape if machines is None else (machines, *self.start.shape)
        return jnp.where(self.soft, spread * jax.random.normal(key, shape), self.start)

    def to_tree(self, params: Float[Array, " parameters"]) -> Tree:
        """Returns the parameters as a tree like `machine.values`.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=2, text="a")
        >>> program.to_tree(program.start)["matrix"]["norm"]
        {'dict': {'accum': {'dict': 1.0}}}
        """
        try:
            values = np.asarray(params).tolist()
        except jax.errors.TracerArrayConversionError:
            values = list(params)
        return trees.from_paths(dict(zip(self.paths, values, strict=True)))

    def from_tree(self, tree: Tree) -> Float[Array, " parameters"]:
        """Returns the vector of a tree like `machine.values`; a leaf that the tree does not have is zero."""
        given = trees.paths(tree)
        known = dict.fromkeys(self.paths)
        for path in given:
            if path not in known:
                raise MachineError(
                    f"the tree has a leaf at {'/'.join(map(repr, path))} that the compiled machine does not have; "
                    "compile the machine that has it"
                )
        leaves = [given.get(path, 0.0) for path in self.paths]
        return jnp.stack([jnp.asarray(leaf, self.start.dtype) for leaf in leaves]) if leaves else self.start

    def with_params(self, params: Float[Array, " parameters"]) -> Machine:
        """Returns the machine with these parameters: to show, prune or write to a file."""
        return self.machine.with_values(self.to_tree(params))

    def _check_shape(self, params: jax.Array) -> int:
        shape, count = jnp.shape(params), len(self.paths)
        if len(shape) not in (1, 2) or shape[-1] != count:
            raise MachineError(
                f"expected {count} parameters, one per leaf of the machine, as a vector or with one row per machine, "
                f"but got the shape {shape}; program.start and program.from_tree(tree) are such vectors"
            )
        return len(shape)

    def _with_hard(self, params: jax.Array) -> jax.Array:
        params = jnp.asarray(params)
        return jnp.where(self.soft, params, self.start.astype(params.dtype))

    def _batch_answers(self, params: jax.Array) -> jax.Array:
        """[parameters, machines] -> [..., cycles, fields, machines]."""
        fixed = self.start.astype(params.dtype)[:, None]
        return self._run_batch(jnp.where(self.soft[:, None], params, fixed))

    def _in_blocks(self, function: Callable[..., Any], params: jax.Array, *others: Any) -> Any:
        """`function(params [parameters, block], *others)`, block after block."""
        machines = len(params)
        block = min(machines, CPU_BLOCK) if jax.default_backend() == "cpu" else machines
        if block == machines:
            return function(params.T, *others)
        short = -machines % block

        def split(x: jax.Array) -> jax.Array:
            # The last block is filled up with machines whose results are dropped.
            x = jnp.concatenate([x, x[:short]]) if short else x
            return x.reshape(-1, block, *x.shape[1:])

        blocks = jax.tree.map(split, (params, *others))
        made = jax.lax.map(lambda each: function(each[0].T, *each[1:]), blocks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:machines], made)
