"""Data parallelism: each device computes its part of every batch.

The computation is that of one device; only shardings are added, and the compiler splits the work and inserts the sums
over devices. So the numbers are those of one device, up to the order of sums, and a wrong batch axis makes a step slow,
not wrong. The batch is sharded; parameters, optimizer state and memory are replicated.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lapwing.task import Batch, Metrics, TaskError

from ._config import ConfigError
from ._gradient import Aux
from ._processes import are_several
from ._state import State
from ._step import Phases

_AXIS = "data"


def mesh_of(devices: int) -> Mesh:
    """A mesh of the first `devices` devices."""
    here = jax.devices()
    if are_several() and devices != len(here):
        raise ConfigError(
            f"devices should be the {len(here)} of all processes, but is {devices}; leave it out to use all"
        )
    if not 1 <= devices <= len(here):
        raise ConfigError(
            f"devices should be from 1 to {len(here)}, but is {devices}; to split a CPU, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={max(2, devices)}"
        )
    return jax.make_mesh((devices,), (_AXIS,), devices=here[:devices], axis_types=(AxisType.Auto,))


def on_every_device(tree: Any, mesh: Mesh) -> Any:
    """The arrays replicated over the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def on_devices_of(like: Any, tree: Any) -> Any:
    """The arrays replicated over the devices of those of another tree."""
    return jax.tree.map(
        lambda at, leaf: jax.device_put(leaf, at.sharding) if at.committed else leaf, like, tree
    )


def on_one_device(tree: Any) -> Any:
    """Replicated arrays, as they are on the first device of this process."""
    return jax.tree.map(
        lambda leaf: leaf.addressable_data(0) if len(leaf.sharding.device_set) > 1 else leaf, tree
    )


def split_over(mesh: Mesh, batch_axis: Any) -> Callable[[Phases], Phases]:
    """Shards the batch in the phases of a step over a mesh. `batch_axis` is that of a task."""

    def split(batch: Batch) -> Batch:
        return jax.lax.with_sharding_constraint(batch, _shardings(batch, batch_axis, mesh))

    def whole(tree: Any) -> Any:
        return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))

    def transform(phases: Phases) -> Phases:
        prepare, remember = phases.prepare, phases.remember

        def update(state: State, loss: jax.Array, aux: Aux, gradient: Any) -> tuple[State, Metrics]:
            return whole(phases.update(state, loss, aux, gradient))

        return phases._replace(
            data=lambda state, fed: split(phases.data(state, fed)),
            prepare=(lambda state, batch: split(prepare(state, batch))) if prepare else None,
            update=update,
            remember=(lambda *arguments: whole(remember(*arguments))) if remember else None,
        )

    return transform


def put_on(mesh: Mesh, batch_axis: Any) -> Callable[[Any, bool], Any]:
    """Brings what the host feeds to the devices: batches, stacked along an axis of steps, are split among them.
    Several processes must all give the same batches."""

    def put(tree: Any, is_batches: bool) -> Any:
        if not is_batches:
            return on_every_device(tree, mesh)
        one = jax.tree.map(lambda leaf: leaf[0], tree)
        shardings = jax.tree.map(
            lambda sharding: NamedSharding(mesh, PartitionSpec(None, *sharding.spec)),
            _shardings(one, batch_axis, mesh),
        )
        return jax.device_put(tree, shardings)

    return put


def _shardings(batch: Batch, batch_axis: Any, mesh: Mesh) -> Any:
    """The shardings of the leaves of a batch."""
    axes = jax.tree.broadcast(batch_axis, batch, is_leaf=lambda axis: axis is None)
    paths, shape = jax.tree_util.tree_flatten_with_path(batch)
    named = [(f"batch{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]
    split = jax.tree.leaves(axes, is_leaf=lambda axis: axis is None)
    if all(axis is None for axis in split):
        raise TaskError("nothing in the batch of this task can be split over devices; train it on one device")
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
            f"make it a multiple of {mesh.size}, or use another number of devices"
        )
    return NamedSharding(mesh, PartitionSpec(*[None] * (axis % len(shape)), _AXIS))
