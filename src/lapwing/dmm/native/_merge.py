"""All stages of a machine as one: every function reads what its fields hold in its cycle.

Stages exist so that as much as possible is computed for all cycles at once. Native code has no use for that: a cycle
costs it no more than its arithmetic. So here all groups of all stages are in one loop.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.dmm._compile_arrays import Slot
from lapwing.dmm._compile_groups import GroupRun
from lapwing.dmm._compile_lanes import LanesError
from lapwing.dmm._compile_products import matrix_block
from lapwing.dmm._layout import Field
from lapwing.dmm._layout_flow import Flow
from lapwing.dmm._layout_stages import Plan

from ._loop import Kind, Loop


class Merged:
    """The groups of a plan as one cycle, and the operands of its loop as arrays made from the values of a machine."""

    def __init__(self, flow: Flow, plan: Plan, cycles: int):
        self.flow, self.plan, self.cycles = flow, plan, cycles
        self.groups = [group for stage in plan.stages for group in (*stage.direct, *stage.recurrent)]
        self.computed: dict[int, list[Field]] = {c: [] for c in range(len(plan.classes))}
        for group in self.groups:
            for field, c in group.outputs:
                self.computed[c] += [(name, field) for name in group.names]
        self.kinds: dict[int, Kind] = {}
        self.inputs: dict[int, list[Field]] = {}
        self.answered: dict[int, list[Field]] = {}
        for c in self.computed:
            self._add_kind(c)

    def _add_kind(self, c: int) -> None:
        sources = [*self.plan.streams[c], *self.computed[c]]
        wanted = dict.fromkeys(
            (name, slot[0])
            for group in self.groups
            for slot in group.inputs
            for name in group.names
            if slot[1] == c
        )
        answers = dict.fromkeys(field for field, kind in self.plan.answers.values() if kind == c)
        linked = {to for to, source in self.plan.weights if source in set(sources)}
        self.inputs[c] = [field for field in wanted if field in linked]
        self.answered[c] = [field for field in answers if field in linked]
        targets = [*self.inputs[c], *self.answered[c]]
        if targets:
            grid = [[(to, source) in self.plan.weights for to in targets] for source in sources]
            keys, known = len(self.plan.classes[c]), len(self.plan.streams[c])
            self.kinds[c] = Kind(keys, np.array(grid), known, len(self.inputs[c]))

    @property
    def links(self) -> int:
        return sum(int(kind.linked.sum()) for kind in self.kinds.values())

    def loop(self, dtype: Any) -> Loop:
        """Raises `LanesError` if a function cannot be written out, or if no answer reads anything."""
        if not any(self.answered.values()):
            raise LanesError("native code has nothing to compute: the answers read no output")
        values = jax.ShapeDtypeStruct((len(self.flow.paths),), dtype)
        parameters = jax.eval_shape(self._parameters, values)
        shape = {c: jax.ShapeDtypeStruct((kind.keys, kind.inputs), dtype) for c, kind in self.kinds.items()}
        inputs = [shape[c] for c, kind in self.kinds.items() if kind.inputs]

        def up(*given: jax.Array) -> list[jax.Array]:
            return self.up(list(given[: len(inputs)]), list(given[len(inputs) :]))

        def back(*given: jax.Array) -> tuple[jax.Array, ...]:
            return jax.vjp(up, *given[: len(inputs) + len(parameters)])[1](
                list(given[len(inputs) + len(parameters) :])
            )

        outputs = jax.eval_shape(up, *inputs, *parameters)
        try:
            derivative = jax.make_jaxpr(back)(*inputs, *parameters, *outputs)
        except Exception as error:  # Whatever a function raises whose derivative nobody may want.
            raise LanesError(
                f"native code holds derivatives too, and a function has none ({error})"
            ) from error
        return Loop(
            self.cycles,
            np.dtype(dtype).name,
            self.kinds,
            tuple(parameter.shape for parameter in parameters),
            jax.make_jaxpr(up)(*inputs, *parameters),
            derivative,
        )

    def operands(self, values: jax.Array) -> dict[str, jax.Array]:
        """What `Loop.operands` names, without the known outputs."""
        found: dict[str, jax.Array] = {}
        runs = self._runs(values)
        for c, kind in self.kinds.items():
            sources, targets = (
                [*self.plan.streams[c], *self.computed[c]],
                [*self.inputs[c], *self.answered[c]],
            )
            matrix = matrix_block(values, self.plan.weights, sources, targets)
            assert matrix is not None
            found[f"matrix{c}"] = matrix
            starts = [run.start(slot) for run in runs for slot in run.group.outputs if slot[1] == c]
            if kind.computed:
                found[f"start{c}"] = jnp.concatenate(starts, axis=-1).T
        return found | {f"parameter{i}": each for i, each in enumerate(self._parameters(values))}

    def streams(self, streams: Mapping[int, Any], dtype: Any) -> dict[str, Any]:
        """The known outputs, in the order of the fields: [cycles, fields, keys]."""
        known = {c: streams[c] for c, kind in self.kinds.items() if kind.known}
        # Those of one text are constants, and turned by NumPy; those of several are on their way through `vmap`.
        return {
            f"stream{c}": np.moveaxis(x, 1, 2).astype(dtype)
            if isinstance(x, np.ndarray)
            else jnp.moveaxis(x, 1, 2).astype(dtype)
            for c, x in known.items()
        }

    def staged_streams(self, streams: Mapping[str, jax.Array], dtype: Any) -> dict[int, jax.Array]:
        """The inverse of `streams`; classes that nothing reads are zero."""
        found = {}
        for c, fields in self.plan.streams.items():
            given = streams.get(f"stream{c}")
            empty = jnp.zeros((self.cycles, len(self.plan.classes[c]), len(fields)), dtype)
            found[c] = empty if given is None else jnp.moveaxis(given, 1, 2)
        return found

    def answers(self, found: jax.Array) -> jax.Array:
        """[cycles, fields of the output neuron] from the answers of the loop, which has none without a link."""
        places, columns = self._places()
        if places == columns == list(range(len(self.flow.fields))):
            return found
        empty = jnp.zeros((self.cycles, len(self.flow.fields)), found.dtype)
        return empty.at[:, np.array(places)].set(found[:, np.array(columns)])

    def answered_of(self, answers: jax.Array) -> jax.Array:
        """The answers of the loop from those of the machine."""
        places, columns = self._places()
        return answers[:, np.array(places)[np.argsort(columns)]]

    def _places(self) -> tuple[list[int], list[int]]:
        """Of the answers of the machine, and of the same in the loop."""
        columns = [field for fields in self.answered.values() for field in fields]
        linked = {i: columns.index(field) for i, (field, _) in self.plan.answers.items() if field in columns}
        return [*linked], [*linked.values()]

    def up(self, inputs: list[jax.Array], parameters: list[jax.Array]) -> list[jax.Array]:
        """The outputs of a cycle, class by class [keys, fields], from the inputs of the classes that have some."""
        filled = [c for c, kind in self.kinds.items() if kind.inputs]
        given = dict(zip(filled, inputs, strict=True))
        some = next(iter(inputs), None)
        dtype = (
            some.dtype if some is not None else parameters[0].dtype if parameters else jnp.result_type(float)
        )
        runs = self._runs(jnp.zeros(len(self.flow.paths), dtype))
        rest = iter(parameters)
        made: dict[int, list[jax.Array]] = {c: [] for c in self.computed}
        for run in runs:
            partials = jax.tree.map(lambda _: next(rest), run.precompute({}, 1))
            outputs = run.apply(partials, self._read(run, given), ())
            for slot in run.group.outputs:
                made[slot[1]].append(outputs[slot])
        return [jnp.concatenate(made[c], axis=-1) for c, kind in self.kinds.items() if kind.computed]

    def _read(self, run: GroupRun, given: Mapping[int, jax.Array]) -> dict[Slot, jax.Array]:
        found: dict[Slot, jax.Array] = {}
        for field, c in run.group.inputs:
            columns = {each: i for i, each in enumerate(self.inputs[c])} if c in given else {}
            places = [columns.get((name, field)) for name in run.group.names]
            if any(place is not None for place in places):
                zero = jnp.zeros((given[c].shape[0], 1), given[c].dtype)
                parts = [zero if place is None else given[c][:, place : place + 1] for place in places]
                found[field, c] = jnp.concatenate(parts, axis=-1)
        return found

    def _runs(self, values: jax.Array) -> list[GroupRun]:
        return [GroupRun(self.flow, self.plan, group, values) for group in self.groups]

    def _parameters(self, values: jax.Array) -> list[jax.Array]:
        """What functions read besides their inputs: their weights in mixes."""
        leaves = jax.tree.leaves([run.precompute({}, 1) for run in self._runs(values)])
        if any(jnp.shape(leaf)[:1] != (1,) or jnp.asarray(leaf).dtype != values.dtype for leaf in leaves):
            raise LanesError("native code takes no other parameters of a function than its weight in a mix")
        return [leaf[0] for leaf in leaves]
