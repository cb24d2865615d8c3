"""The neurons of a group in one run: their functions on arrays, mixed if they are fluid, and their initial outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._compile_arrays import ArrayForm, Arrays, Partial, Slot, form_of
from ._layout_flow import Flow
from ._layout_stages import Group, Plan
from ._neuron import FUNCTION


class GroupRun:
    """A group with the values of a run. Arrays are [..., keys, neurons], in a batch [..., keys, neurons, machines]."""

    def __init__(self, flow: Flow, plan: Plan, group: Group, values: jax.Array):
        self.flow, self.plan, self.group, self.values = flow, plan, group, values
        active = [f for f in group.neuron.functions if not group.neuron.fluid or f.name in group.mixed]
        keys_axis = -2 - len(values.shape[1:])
        self.forms = [form_of(function, plan.classes, keys_axis) for function in active]

    def precompute(self, inputs: Arrays, cycles: int) -> list[tuple[Partial, jax.Array | None]]:
        """For each function what follows from inputs that are known for all cycles, and its weight in the mix, once
        for each cycle: a loop reads nothing but arrays over cycles."""
        return [(form.precompute(_read_by(form, inputs)), self._mix(form, cycles)) for form in self.forms]

    def apply(
        self, partials: list[tuple[Partial, jax.Array | None]], inputs: Arrays, time: tuple[int, ...]
    ) -> dict[Slot, jax.Array]:
        """The outputs that belong to this stage; `time` is the shape of the axes before the keys."""
        sums: dict[Slot, jax.Array] = {}
        for form, (partial, mix) in zip(self.forms, partials, strict=True):
            for slot, made in form.apply(partial, _read_by(form, inputs)).items():
                made = made if mix is None else mix * made
                sums[slot] = sums[slot] + made if slot in sums else made
        # As many machines as the inputs are of: a kernel looks at one of them alone.
        machines = next((x.shape[len(time) + 2 :] for x in inputs.values()), self.values.shape[1:])
        return {
            slot: self._in_shape(sums.get(slot, 0.0), slot, time, machines) for slot in self.group.outputs
        }

    def start(self, slot: Slot) -> jax.Array:
        """The initial outputs."""
        field, c = slot
        found = [
            (k, g, self.flow.initial[name, field, path])
            for k, path in enumerate(self.plan.classes[c])
            for g, name in enumerate(self.group.names)
            if (name, field, path) in self.flow.initial
        ]
        empty = self._in_shape(0.0, slot, (), self.values.shape[1:])
        if not found:
            return empty
        keys, neurons, indices = np.array(found).T
        return empty.at[keys, neurons].set(self.values[indices])

    def _mix(self, form: ArrayForm, cycles: int) -> jax.Array | None:
        """The weights of a function in the mixes of fluid neurons, which are invariant: their initial values."""
        if not self.group.neuron.fluid:
            return None
        indices = [self.flow.initial[name, FUNCTION, (form.activation.name,)] for name in self.group.names]
        mix = self.values[np.array(indices)]
        return jnp.broadcast_to(mix, (cycles, 1, *mix.shape))

    def _in_shape(
        self, array: Any, slot: Slot, time: tuple[int, ...], machines: tuple[int, ...]
    ) -> jax.Array:
        shape = (*time, len(self.plan.classes[slot[1]]), len(self.group.names), *machines)
        return jnp.broadcast_to(jnp.asarray(array, self.values.dtype), shape)


def _read_by(form: ArrayForm, inputs: Arrays) -> Arrays:
    return {slot: array for slot, array in inputs.items() if slot[0] in form.inputs}
