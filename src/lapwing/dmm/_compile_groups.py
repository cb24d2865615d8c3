"""The neurons of a group in one run: their functions on arrays, mixed if they are fluid, and what they start
with.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._compile_arrays import Form, Parts, Summary, form_of
from ._layout_flow import Flow
from ._layout_stages import Group, Plan, Slot
from ._neuron import FUNCTION


class GroupRun:
    """A group with the values of this run. Arrays are [..., keys, neurons], with the machines behind, if there are."""

    def __init__(self, flow: Flow, plan: Plan, group: Group, values: jax.Array):
        self.flow, self.plan, self.group, self.values = flow, plan, group, values
        active = [f for f in group.neuron.functions if not group.neuron.fluid or f.name in group.mixed]
        keys_axis = -2 - len(values.shape[1:])
        self.forms = [form_of(function, plan.classes, keys_axis) for function in active]

    def settle(self, parts: Parts, cycles: int) -> list[tuple[Summary, jax.Array | None]]:
        """What can be computed before the loop, for each function, from inputs that are settled for all cycles. Its
        weight in the mix comes along, as one for each cycle: a loop takes what differs by cycle and nothing else."""
        mine = [{slot: x for slot, x in parts.items() if slot[0] in form.inputs} for form in self.forms]
        return [
            (form.settle(some), self._mix(form, cycles)) for form, some in zip(self.forms, mine, strict=True)
        ]

    def finish(
        self, settled: list[tuple[Summary, jax.Array | None]], parts: Parts, time: tuple[int, ...]
    ) -> dict[Slot, jax.Array]:
        """The outputs that belong to this stage; `time` is the shape of the axes before the keys."""
        sums: dict[Slot, jax.Array] = {}
        for form, (summary, mix) in zip(self.forms, settled, strict=True):
            mine = {slot: x for slot, x in parts.items() if slot[0] in form.inputs}
            for slot, made in form.finish(summary, mine).items():
                made = made if mix is None else mix * made
                sums[slot] = sums[slot] + made if slot in sums else made
        return {slot: self._in_shape(sums.get(slot, 0.0), slot, time) for slot in self.group.outputs}

    def start(self, slot: Slot) -> jax.Array:
        """What the neurons show before the first cycle."""
        field, c = slot
        found = [
            (k, g, self.flow.initial[name, field, path])
            for k, path in enumerate(self.plan.classes[c])
            for g, name in enumerate(self.group.names)
            if (name, field, path) in self.flow.initial
        ]
        empty = self._in_shape(0.0, slot, ())
        if not found:
            return empty
        keys, neurons, places = np.array(found).T
        return empty.at[keys, neurons].set(self.values[places])

    def _mix(self, form: Form, cycles: int) -> jax.Array | None:
        """The weights of a function in the mixes of fluid neurons; they are held, so that the start says it all."""
        if not self.group.neuron.fluid:
            return None
        places = [self.flow.initial[name, FUNCTION, (form.activation.name,)] for name in self.group.names]
        mix = self.values[np.array(places)]
        return jnp.broadcast_to(mix, (cycles, 1, *mix.shape))

    def _in_shape(self, array: Any, slot: Slot, time: tuple[int, ...]) -> jax.Array:
        shape = (*time, len(self.plan.classes[slot[1]]), len(self.group.names), *self.values.shape[1:])
        return jnp.broadcast_to(jnp.asarray(array, self.values.dtype), shape)
