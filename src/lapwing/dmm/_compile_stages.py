"""Runs the stages of a plan (`_layout_stages`): each is a product, the functions of its groups, and perhaps a loop.

All outputs of a class of keys that are computed so far are one array over time, [cycles, keys, fields], with their
values at the beginning of each cycle. What a stage reads from the stages before it is then one product with a block of
the matrix, for all cycles at once. In a batch the values have a second axis, the machines, and every array that depends
on them has it as its last axis.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _compile_batched, _compile_loop, _compile_products
from ._compile_arrays import Slot
from ._compile_groups import GroupRun
from ._compile_products import matrix_block
from ._compile_sums import is_running_sum, running_sum
from ._layout import Field
from ._layout_flow import Flow
from ._layout_stages import Group, Plan

Streams = Mapping[int, Any]  # class -> [cycles, keys, fields]
Staged = Callable[[jax.Array, Streams], jax.Array]
Port = tuple[int, Slot]  # which group of a stage, and one of its fields and classes


class Backend(NamedTuple):
    """How a stage reads what is linked to it: from the stages before it, and from itself."""

    combine_all: Callable[..., jax.Array]
    recurrent_loop: Callable[..., dict[int, jax.Array]]


SINGLE = Backend(_compile_products.combine_all, _compile_loop.recurrent_loop)
BATCHED = Backend(_compile_batched.combine_all, _compile_batched.recurrent_loop)


def staged_run(flow: Flow, plan: Plan, cycles: int) -> Staged:
    """The function from the values of a machine and its known outputs to its answers, [cycles, fields of the output
    neuron]."""

    def answers(values: jax.Array, streams: Streams) -> jax.Array:
        run = _StagedRun(flow, plan, streams, cycles, values)
        for stage in plan.stages if cycles else ():
            run.compute_at_once(stage.direct)
            sums = [group for group in stage.recurrent if is_running_sum(flow, plan, stage.recurrent, group)]
            run.sum_up(sums)
            run.step_through([group for group in stage.recurrent if group not in sums])
        return run.answers()

    return answers


class _StagedRun:
    """The outputs computed so far."""

    def __init__(self, flow: Flow, plan: Plan, streams: Streams, cycles: int, values: jax.Array):
        self.flow, self.plan, self.streams, self.cycles, self.values = flow, plan, streams, cycles, values
        self.backend = BATCHED if values.ndim == 2 else SINGLE
        self.fields_axis = -1 - len(values.shape[1:])
        self.columns: dict[int, list[Field]] = {c: [] for c in range(len(plan.classes))}
        self.seen: dict[int, list[jax.Array]] = {c: [] for c in self.columns}

    def answers(self) -> jax.Array:
        found = jnp.zeros((self.cycles, len(self.flow.fields), *self.values.shape[1:]), self.values.dtype)
        if self.plan.answers:
            # All answers are numbers: one class of keys, with one key.
            fields, (c, *_) = zip(*self.plan.answers.values(), strict=True)
            total = self._from_before(c, list(fields))
            if total is not None:
                found = found.at[:, np.array(list(self.plan.answers))].set(total[:, 0])
        return found

    def compute_at_once(self, groups: Sequence[Group]) -> None:
        if not groups:
            return
        runs = [GroupRun(self.flow, self.plan, group, self.values) for group in groups]
        given = self._from_stages(_ports(groups, "inputs"), groups)
        made: list[tuple[Group, Slot, jax.Array]] = []
        for i, run in enumerate(runs):
            partials = run.precompute(_of_group(i, given), self.cycles)
            outputs = run.apply(partials, {}, (self.cycles,))
            for slot in run.group.outputs:
                shifted = jnp.concatenate([run.start(slot)[None], outputs[slot][:-1]])
                made.append((run.group, slot, shifted))
        self._add(made)

    def sum_up(self, groups: Sequence[Group]) -> None:
        given = self._from_stages(_ports(groups, "inputs"), groups)
        made = []
        for i, group in enumerate(groups):
            function = group.neuron.functions[0]
            run = GroupRun(self.flow, self.plan, group, self.values)
            for slot in group.outputs:
                memory, change = (given.get((i, (field, slot[1]))) for field in function.inputs)
                made.append(
                    (group, slot, running_sum(function, run.start(slot), memory, change, self.cycles))
                )
        self._add(made)

    def step_through(self, groups: Sequence[Group]) -> None:
        if not groups:
            return
        runs = [GroupRun(self.flow, self.plan, group, self.values) for group in groups]
        state = _ports(groups, "outputs")
        inside, changing = self._inside(groups, state)
        fixed = [port for port in _ports(groups, "inputs") if port not in changing]
        given = self._from_stages(fixed, groups)
        partials = [run.precompute(_of_group(i, given), self.cycles) for i, run in enumerate(runs)]
        outside = {
            c: self._from_before(c, _fields(groups, ports)) for c, ports in _by_class(changing).items()
        }
        start = {
            c: self._concat_fields(runs[i].start(slot) for i, slot in ports)
            for c, ports in _by_class(state).items()
        }

        def up(inputs, partials):
            fields = self._split_fields(inputs, groups, changing)
            outputs = [run.apply(partials[i], _of_group(i, fields), ()) for i, run in enumerate(runs)]
            return {
                c: self._concat_fields(outputs[i][slot] for i, slot in ports)
                for c, ports in _by_class(state).items()
            }

        outside = {c: x for c, x in outside.items() if x is not None}
        seen = self.backend.recurrent_loop(up, inside, start, outside, partials, self.cycles)
        for c, ports in _by_class(state).items():
            self.columns[c] += _fields(groups, ports)
            self.seen[c].append(seen[c])

    def _inside(
        self, groups: Sequence[Group], state: Iterable[Port]
    ) -> tuple[dict[int, jax.Array], list[Port]]:
        """The matrix from the outputs of these groups to their own inputs, by class, and the inputs that it reaches."""
        found, changing = {}, []
        sources = {c: _fields(groups, ports) for c, ports in _by_class(state).items()}
        for c, ports in _by_class(_ports(groups, "inputs")).items():
            reached = [p for p in ports if self._linked(sources.get(c, []), _fields(groups, [p]))]
            matrix = matrix_block(
                self.values, self.plan.weights, sources.get(c, []), _fields(groups, reached)
            )
            if matrix is not None:
                found[c] = matrix
                changing += reached
        return found, changing

    def _linked(self, sources: Iterable[Field], targets: Iterable[Field]) -> bool:
        sources = set(sources)
        return any((target, source) in self.plan.weights for target in targets for source in sources)

    def _from_stages(self, ports: Iterable[Port], groups: Sequence[Group]) -> dict[Port, jax.Array]:
        """What earlier stages and known data add to these inputs, each [cycles, keys, neurons]; zeros are left out."""
        found = {}
        for c, wanted in _by_class(ports).items():
            linked = [p for p in wanted if self._linked(self._sources(c), _fields(groups, [p]))]
            total = self._from_before(c, _fields(groups, linked))
            if total is not None:
                found |= self._split_fields({c: total}, groups, linked)
        return found

    def _sources(self, c: int) -> list[Field]:
        return [*self.plan.streams[c], *self.columns[c]]

    def _from_before(self, c: int, targets: list[Field]) -> jax.Array | None:
        """The sum of all earlier outputs that are linked to these input fields: [cycles, keys, fields]."""
        matrix = matrix_block(self.values, self.plan.weights, self._sources(c), targets)
        if matrix is None:
            return None
        stream = jnp.asarray(self.streams[c], self.values.dtype)
        computed = self._concat_fields(self.seen[c]) if self.seen[c] else None
        return self.backend.combine_all(stream, computed, matrix)

    def _add(self, made: Iterable[tuple[Group, Slot, jax.Array]]) -> None:
        for group, (field, c), array in made:
            self.columns[c] += [(name, field) for name in group.names]
            self.seen[c].append(array)

    def _concat_fields(self, arrays: Iterable[jax.Array]) -> jax.Array:
        arrays = list(arrays)
        return arrays[0] if len(arrays) == 1 else jnp.concatenate(arrays, self.fields_axis)

    def _split_fields(
        self, arrays: Mapping[int, jax.Array], groups: Sequence[Group], ports: Iterable[Port]
    ) -> dict[Port, jax.Array]:
        """The inverse of `_concat_fields`."""
        found = {}
        for c, here in _by_class(ports).items():
            if c in arrays:
                # The derivative of `split` is a concatenation, that of slices a sum of padded arrays.
                sizes = [len(groups[i].names) for i, _ in here]
                found |= dict(
                    zip(here, jax.lax.split(arrays[c], sizes, arrays[c].ndim + self.fields_axis), strict=True)
                )
        return found


def _ports(groups: Sequence[Group], side: str) -> list[Port]:
    return [(i, slot) for i, group in enumerate(groups) for slot in getattr(group, side)]


def _by_class(ports: Iterable[Port]) -> dict[int, list[Port]]:
    found: dict[int, list[Port]] = {}
    for port in ports:
        found.setdefault(port[1][1], []).append(port)
    return found


def _fields(groups: Sequence[Group], ports: Iterable[Port]) -> list[Field]:
    return [(name, slot[0]) for i, slot in ports for name in groups[i].names]


def _of_group(group: int, arrays: Mapping[Port, jax.Array]) -> dict[Slot, jax.Array]:
    return {slot: array for (i, slot), array in arrays.items() if i == group}
