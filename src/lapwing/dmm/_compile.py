"""From a machine to array functions: `compile` gives a `Program`, functions of one flat vector of parameters.

The vector has one entry for each leaf of `machine.values`, in sorted-key order: dead links too, since they
count in a regularisation. Hard entries are there for the same reason, but their numbers are built into the
program: it uses what the machine had, whatever the vector says, and their gradient is zero.

What a machine reads is data to its program. So one program can run it on several texts at once: the machine is laid
out for the characters of all of them, and the stages are vmapped over what the known neurons show for each.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.core import suggestion
from lapwing.trees import Path, Tree

from ._activation import MachineError
from ._compile_flat import Run, flat_run
from ._compile_stages import staged_run
from ._compile_streams import known_streams
from ._layout_flow import Flow, analyse
from ._layout_stages import Plan, plan_stages
from ._machine import Machine, split_address
from ._population import Population

Text = str | Sequence[str | Tree]
Stages = Callable[[jax.Array], jax.Array]


class Program:
    """A compiled machine. `params` are vectors like `start`; all functions can be jitted, vmapped, differentiated."""

    def __init__(self, flow: Flow, cycles: int, run: Run, run_many: Callable[[jax.Array], jax.Array]):
        leaves = trees.paths(flow.machine.values)
        self.machine = flow.machine
        self.cycles = cycles
        self.paths = flow.paths
        self.fields = flow.fields
        self.soft = np.array([path not in flow.machine.hard for path in leaves])
        self.start = jnp.array(list(leaves.values()), jnp.result_type(float))
        self._watched = flow.watched
        self._run = run
        self.run_many = (
            run_many  # [parameters, machines] -> [cycles, fields, machines]; hard entries as they are
        )

    def answers(self, params: jax.Array) -> jax.Array:
        """What stands in the fields of the output neuron after each down stroke, as numbers: [cycles, fields], or
        [texts, cycles, fields] if the machine was compiled for several texts.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.duplicate_detector(), cycles=15, text="aab")
        >>> program.fields, program.answers(program.start)[-1].tolist()
        (('dict-1', 'dict-2'), [1.0, 0.0])
        """
        return self._run(self._values(params))[0]

    def watched(self, params: jax.Array) -> dict[str, Tree]:
        """What the neurons wrote on the watched output fields, cycle by cycle: trees with [cycles] at the leaves.

        >>> from lapwing import dmm
        >>> program = dmm.compile(dmm.wave_machine(), cycles=3, watch=["self.result"])
        >>> row = program.watched(program.start)["self.result"]["self"]["delta"]
        >>> {name: row[name]["result"].tolist() for name in row}
        {'update-1': [0.0, 0.0, 1.0], 'update-2': [1.0, 0.0, 0.0], 'update-3': [0.0, 1.0, 0.0]}
        """
        seen = self._run(self._values(params))[1]
        found: dict[str, dict[Path, jax.Array]] = {}
        for i, (name, field, path) in enumerate(self._watched):
            found.setdefault(f"{name}.{field}", {})[path] = seen[:, i]
        return {address: trees.from_paths(leaves) for address, leaves in found.items()}

    def _values(self, params: jax.Array) -> jax.Array:
        if jnp.shape(params) != (len(self.paths),):
            raise MachineError(
                f"expected a vector of {len(self.paths)} parameters, one per leaf of the machine, but got the shape "
                f"{jnp.shape(params)}; program.start and program.from_tree(tree) are such vectors"
            )
        params = jnp.asarray(params)
        return jnp.where(self.soft, params, self.start.astype(params.dtype))

    def loss(self, params: jax.Array, targets: jax.Array, *, skip: int = 0) -> jax.Array:
        """The sum of squared errors of all answers, leaving out the first `skip` cycles."""
        return jnp.sum((self.answers(params) - jnp.asarray(targets))[..., skip:, :] ** 2)

    def to_tree(self, params: jax.Array) -> Tree:
        """The parameters as a tree like `machine.values`.

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

    def from_tree(self, tree: Tree) -> jax.Array:
        """The vector of a tree like `machine.values`; a leaf that the tree does not have is zero."""
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

    def population(self, machines: int) -> Population:
        """So many machines of this wiring at once: see `Population`."""
        return Population(self, machines)

    def with_params(self, params: jax.Array) -> Machine:
        """The machine with these parameters: to show, prune or write to a file."""
        return self.machine.with_values(self.to_tree(params))


def compile(  # noqa: A001
    machine: Machine,
    cycles: int,
    *,
    watch: Iterable[str] = (),
    texts: Sequence[Text] | None = None,
    **options: Any,
) -> Program:
    """Compiles a machine for runs of so many cycles. Options are those of `interpret`: `text`, `governor`,
    `accumulator_gradient`, `norm_ties` and those of your own activations. `watch` names output fields
    (`"accum.dict"`) whose values you want besides the answers; that takes a slower loop. With `texts` instead of
    `text` it runs on each of them.

    >>> import jax
    >>> from lapwing import dmm
    >>> program = dmm.compile(dmm.duplicate_detector(), cycles=140, text="test string.")
    >>> targets = program.answers(program.start)
    >>> gradient = jax.grad(program.loss)(0.9 * program.start, targets)
    >>> gradient.shape, int(program.soft.sum())
    ((11,), 9)
    >>> program = dmm.compile(dmm.duplicate_detector(), cycles=35, texts=["aab", "abb", "abc"])
    >>> program.answers(program.start)[:, -1].tolist()
    [[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]
    """
    if not isinstance(cycles, int) or cycles < 0:
        raise MachineError(f"a run has a whole number of cycles, 0 or more, but got {cycles!r}")
    if texts is not None:
        options["text"] = _joined(texts)
    machine = machine.with_options(**options)
    fields = [split_address(address) for address in watch]
    for name, field in fields:
        known = machine.neurons[name].outputs if name in machine.neurons else ()
        if field not in known:
            every = [f"{n}.{f}" for n, neuron in machine.neurons.items() for f in neuron.outputs]
            raise MachineError(
                f"there is no output field {name}.{field} to watch; {suggestion(f'{name}.{field}', every)}"
            )
    if machine.output not in machine.neurons and not fields:
        raise MachineError(
            f"the machine has no output neuron {machine.output!r}; {suggestion(machine.output, machine.neurons)}; "
            "say which one answers with Machine(output=...), or what to watch with compile(..., watch=[...])"
        )
    flow = analyse(machine, fields)
    plan = plan_stages(flow)
    if plan is None:
        if texts is not None:
            raise MachineError(
                "a machine that rewrites itself, or is watched, is compiled for one text; write text=... for each"
            )
        flat = flat_run(flow, cycles)
        return Program(flow, cycles, flat, jax.vmap(lambda values: flat(values)[0], -1, -1))
    if texts is None:
        staged = staged_run(flow, plan, known_streams(flow, plan, cycles), cycles)
    else:
        staged = _on_each(
            [known_streams(flow, plan, cycles, text=text) for text in texts], flow, plan, cycles
        )
    return Program(flow, cycles, lambda values: (staged(values), jnp.zeros((cycles, 0))), staged)


def _joined(texts: Sequence[Text]) -> Text:
    """A text with the characters of all."""
    if not texts or not all(texts):
        raise MachineError(f"texts should be some texts, none of them empty, but are {list(texts)!r}")
    return tuple(item for text in texts for item in text)


def _on_each(streams: list[dict[int, np.ndarray]], flow: Flow, plan: Plan, cycles: int) -> Stages:
    stacked = {c: np.stack([each[c] for each in streams]) for c in streams[0]}

    def run(values: jax.Array) -> jax.Array:
        known = {c: jnp.asarray(stream, values.dtype) for c, stream in stacked.items()}
        return jax.vmap(lambda stream: staged_run(flow, plan, stream, cycles)(values))(known)

    return run
