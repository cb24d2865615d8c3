"""A training on several devices, each of which computes its part of every batch.

Nothing is computed otherwise than on one device: it is only said where the arrays lie, and the compiler splits the
work accordingly and adds the sums over the devices. So the numbers are those of one device, up to the order in which
sums are taken, and an axis of the batch that was named wrongly makes a step slow, not wrong. The batch is split; what
goes from step to step (parameters, optimizer, memory) is on every device.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lapwing.task import Batch, Metrics, TaskError

from ._config import ConfigError
from ._processes import are_several
from ._state import State
from ._step import Phases

_AXIS = "data"


def mesh_of(devices: int) -> Mesh:
    """So many of the devices that are here."""
    here = jax.devices()
    if are_several() and devices != len(here):
        raise ConfigError(
            f"devices should be the {len(here)} of all processes together, but is {devices}; leave it out to take all"
        )
    if not 1 <= devices <= len(here):
        raise ConfigError(
            f"devices should be from 1 to the {len(here)} that are here, but is {devices}; a CPU can be split by "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={max(2, devices)}"
        )
    return jax.make_mesh((devices,), (_AXIS,), devices=here[:devices], axis_types=(AxisType.Auto,))


def on_every_device(tree: Any, mesh: Mesh) -> Any:
    """The same arrays, whole, on each device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def on_devices_of(like: Any, tree: Any) -> Any:
    """The arrays of a tree, whole, on the devices where those of another tree were put."""
    return jax.tree.map(
        lambda at, leaf: jax.device_put(leaf, at.sharding) if at.committed else leaf, like, tree
    )


def on_one_device(tree: Any) -> Any:
    """What lies whole on each device, as it lies on the first one of this process."""
    return jax.tree.map(
        lambda leaf: leaf.addressable_data(0) if len(leaf.sharding.device_set) > 1 else leaf, tree
    )


def split_over(mesh: Mesh, batch_axis: Any) -> Callable[[Phases], Phases]:
    """The phases of a step with their batch split over a mesh. `batch_axis` is that of a task."""

    def split(batch: Batch) -> Batch:
        return jax.lax.with_sharding_constraint(batch, _shardings(batch, batch_axis, mesh))

    def whole(tree: Any) -> Any:
        return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))

    def form(phases: Phases) -> Phases:
        prepare, remember = phases.prepare, phases.remember

        def update(state: State, loss: jax.Array, metrics: Metrics, gradient: Any) -> tuple[State, Metrics]:
            return whole(phases.update(state, loss, metrics, gradient))

        return phases._replace(
            data=lambda state: split(phases.data(state)),
            prepare=(lambda state, batch: split(prepare(state, batch))) if prepare else None,
            update=update,
            remember=(lambda *told: whole(remember(*told))) if remember else None,
        )

    return form


def _shardings(batch: Batch, batch_axis: Any, mesh: Mesh) -> Any:
    """Where the leaves of a batch lie."""
    axes = jax.tree.broadcast(batch_axis, batch, is_leaf=lambda axis: axis is None)
    paths, shape = jax.tree_util.tree_flatten_with_path(batch)
    named = [(f"batch{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]
    split = jax.tree.leaves(axes, is_leaf=lambda axis: axis is None)
    if all(axis is None for axis in split):
        raise TaskError("nothing in the batch of this task can be split over devices; train it on one")
    leaves = [_sharding(*pair, axis, mesh) for pair, axis in zip(named, split, strict=True)]
    return jax.tree.unflatten(shape, leaves)


def _sharding(name: str, leaf: Any, axis: int | None, mesh: Mesh) -> NamedSharding:
    if axis is None:
        return NamedSharding(mesh, PartitionSpec())
    shape = np.shape(leaf)
    if not -len(shape) <= axis < len(shape):
        raise TaskError(
            f"{name} has shape {shape} and no axis {axis} to be split over devices; "
            "give the task a batch_axis that is None there"
        )
    if shape[axis] % mesh.size:
        raise ConfigError(
            f"a batch of {shape[axis]} cannot be split evenly over {mesh.size} devices ({name}, axis {axis}); "
            f"make it a multiple of {mesh.size}, or take another number of devices"
        )
    return NamedSharding(mesh, PartitionSpec(*[None] * (axis % len(shape)), _AXIS))
