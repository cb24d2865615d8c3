"""Everything that goes from one step to the next, as one tree of arrays on the device."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Key, Memory, Params, Task, TaskError

from ._config import FitConfig
from ._mask import Mask, mask_of, split


class Controls(NamedTuple):
    """What may be changed while a run runs. Arrays, so that a change never compiles again."""

    learning_rate: jax.Array
    clip: jax.Array
    weight_decay: jax.Array
    penalties: dict[str, jax.Array]


class Keys(NamedTuple):
    """Where randomness comes from, as the plain numbers of jax keys, which a call takes and gives faster."""

    batch: jax.Array
    prepare: jax.Array
    evaluate: jax.Array


class State(NamedTuple):
    """A run after `step` updates."""

    step: jax.Array
    params: Params
    optimizer: optax.OptState
    keys: Keys
    controls: Controls
    memory: Memory = None


def initial_state(task: Task, config: FitConfig) -> tuple[State, Mask]:
    """The state before the first update, and which parameters are trained."""
    init_key, *keys, memory_key = jax.random.split(jax.random.key(config.seed), 5)
    params = task.init(init_key)
    mask = mask_of(task, params)
    params = jax.tree.map(jnp.asarray, params)
    trained, _ = split(params, mask)
    if not jax.tree.leaves(trained):
        raise TaskError("no parameter is trained; trainable(params) should be True somewhere")
    state = State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        optimizer=jax.jit(task.optimizer.init)(trained),  # One small program instead of one for each shape.
        keys=Keys(*map(jax.random.key_data, keys)),
        controls=Controls(
            learning_rate=jnp.float32(config.learning_rate),
            clip=jnp.float32(config.clip),
            weight_decay=jnp.float32(config.weight_decay),
            penalties={name: jnp.float32(penalty.weight) for name, penalty in task.penalties.items()},
        ),
        memory=jax.tree.map(jnp.asarray, task.memory(memory_key)) if task.memory else None,
    )
    # In memory of its own: the loop uses its state up, and the caller's arrays must live.
    return copy_of(state), mask


def key_at(step: jax.Array, key_data: jax.Array) -> Key:
    """The key of a step: another one at each, and the same again whenever that step is made again."""
    return jax.random.fold_in(jax.random.wrap_key_data(key_data), step)


@jax.jit
def copy_of(state: State) -> State:
    """The same numbers in other memory, for a call that uses up its argument."""
    return jax.tree.map(jnp.copy, state)


def with_other_data(state: State, number: int) -> State:
    """The state with other data to come: another draw for each `number`. Evaluation keeps its data."""

    def another(key_data: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key_data), number))

    keys = state.keys
    return state._replace(keys=keys._replace(batch=another(keys.batch), prepare=another(keys.prepare)))


def shapes_of(state: State) -> State:
    """What compiling needs to know of a state, without its numbers, which a call uses up."""

    def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
        where = leaf.sharding if getattr(leaf, "committed", False) else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    return jax.tree.map(shape_of, state)


def device_name(devices: int | None = None) -> str:
    """What a training on so many devices runs on, for a person.

    >>> device_name(), device_name(2)
    ('cpu', '2 × cpu')
    """
    kind = jax.devices()[0].device_kind
    return kind if devices in (None, 1) else f"{devices} × {kind}"
