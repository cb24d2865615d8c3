"""The state of a run: everything that one step passes to the next, as one tree of arrays on the device."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from lapwing.task import Key, Memory, ModelState, Params, Task, TaskError

from ._config import FitConfig
from ._hyperparams import hyperparams_by_name, with_hyperparams
from ._mask import Mask, mask_of, split
from ._optimizer import OWN, RATE, SCALE, OptimizerState, make_optimizer

Tree = TypeVar("Tree")

Controls = Mapping[str, jax.Array]
"""What can be changed during a run, by name: the hyperparameters of the optimizer and the weights of the penalties.
These are arrays in the state, so a change never recompiles."""


class Keys(NamedTuple):
    """The random keys as plain arrays (`jax.random.key_data`), which a call takes and returns faster than keys."""

    batch: jax.Array
    prepare: jax.Array
    evaluate: jax.Array
    loss: jax.Array | None = None  # For a loss that takes a key.


class State(NamedTuple):
    """A run after `step` updates. `penalties` are the weights, `model` is the state of a model that has one, `ema` the
    moving average of the parameters if the run keeps it.

    >>> from lapwing.task import Task
    >>> from lapwing.train import FitConfig, initial_state
    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)}, data=lambda key, step: 1.0, loss=lambda p, x: (p["w"].sum(), {})
    ... )
    >>> state, _ = initial_state(task, FitConfig(learning_rate=0.5))
    >>> int(state.step), state.params["w"].shape, float(state.controls["learning_rate"])
    (0, (3,), 0.5)
    """

    step: jax.Array
    params: Params
    optimizer: OptimizerState
    keys: Keys
    penalties: dict[str, jax.Array]
    memory: Memory = None
    model: ModelState = None
    ema: Params = None

    @property
    def controls(self) -> Controls:
        """The arrays that a command may change."""
        named = hyperparams_by_name(self.optimizer.task, self._own_controls)
        found = {**self._own_controls, **{name: value for name, (_, value) in named.items()}}
        # jax sorts the names of a dict; people look for the learning rate first.
        first = [name for name in OWN if name in found]
        return {name: found[name] for name in dict.fromkeys([*first, *found])}

    def with_controls(self, controls: Controls) -> "State":
        """The state with other values of some controls."""
        hyperparams, penalties = (
            {name: controls.get(name, old) for name, old in own.items()}
            for own in (self.optimizer.hyperparams, self.penalties)
        )
        named = hyperparams_by_name(self.optimizer.task, self._own_controls)
        task = with_hyperparams(
            self.optimizer.task,
            {path: controls[name] for name, (path, _) in named.items() if name in controls},
        )
        return self._replace(optimizer=OptimizerState(hyperparams, task), penalties=penalties)

    @property
    def rate_name(self) -> str:
        """The control that rollbacks and plateaus cut: the learning rate, or the scale of all updates where there is
        not one learning rate."""
        return SCALE if SCALE in self.optimizer.hyperparams else RATE

    @property
    def _own_controls(self) -> dict[str, jax.Array]:
        return {**self.optimizer.hyperparams, **self.penalties}


def initial_state(task: Task, config: FitConfig) -> tuple[State, Mask]:
    """The state before the first update, and the mask of trained parameters.

    >>> task = Task(
    ...     init=lambda key: {"w": jnp.zeros(3)}, data=lambda key, step: 1.0, loss=lambda p, x: (p["w"].sum(), {})
    ... )
    >>> state, mask = initial_state(task, FitConfig())
    >>> state.params, mask
    ({'w': Array([0., 0., 0.], dtype=float32)}, {'w': True})
    """
    init_key, *keys, memory_key = jax.random.split(jax.random.key(config.seed), 5)
    params, model = _initialized(task, init_key)
    mask = mask_of(task, params)
    params = jax.tree.map(jnp.asarray, params)
    trained, _ = split(params, mask)
    if not jax.tree.leaves(trained):
        raise TaskError("no parameter is trained; trainable(params) should be True somewhere")
    state = State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        optimizer=jax.jit(make_optimizer(task, config).init)(
            trained
        ),  # One program instead of one per shape.
        keys=Keys(*map(jax.random.key_data, keys), loss=_loss_key(task, config)),
        penalties={name: jnp.float32(penalty.weight) for name, penalty in task.penalties.items()},
        memory=jax.tree.map(jnp.asarray, task.memory(memory_key)) if task.memory else None,
        model=jax.tree.map(jnp.asarray, model),
        ema=params if config.ema else None,
    )
    # A copy: the loop donates its state, and the arrays of the caller must stay alive.
    return copy_of(state), mask


def _initialized(task: Task, key: Key) -> tuple[Params, ModelState]:
    if not task.has_state:
        return task.init(key), None
    made = task.init(key)
    if not isinstance(made, tuple) or len(made) != 2:
        raise TaskError(
            "loss takes params, batch, state, key, so init(key) should return parameters and state, but it returned a "
            f"{type(made).__name__}"
        )
    return made


def _loss_key(task: Task, config: FitConfig) -> jax.Array | None:
    # Not another part of the split above, which would change the other keys.
    return jax.random.key_data(jax.random.fold_in(jax.random.key(config.seed), 1)) if task.has_key else None


def key_at(step: jax.Array, key_data: jax.Array) -> Key:
    """The key of a step: different for each step, and the same whenever that step is repeated.

    >>> data = jax.random.key_data(jax.random.key(0))
    >>> one, again, other = (jax.random.key_data(key_at(jnp.int32(step), data)).tolist() for step in (1, 1, 2))
    >>> one == again, one == other
    (True, False)
    """
    return jax.random.fold_in(jax.random.wrap_key_data(key_data), step)


@jax.jit
def copy_of(state: Tree) -> Tree:
    """A copy in new buffers, for a call that donates its argument."""
    return jax.tree.map(jnp.copy, state)


def with_other_data(state: State, number: int) -> State:
    """The state with new random keys, different for each `number`. Evaluation keeps its key."""

    def another(key_data: jax.Array) -> jax.Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(key_data), number))

    keys = state.keys
    loss = None if keys.loss is None else another(keys.loss)
    return state._replace(
        keys=keys._replace(batch=another(keys.batch), prepare=another(keys.prepare), loss=loss)
    )


def shapes_of(state: Tree) -> Tree:
    """Shapes, dtypes and shardings: enough to compile, without keeping arrays that a call donates."""

    def shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
        where = leaf.sharding if getattr(leaf, "committed", False) else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    return jax.tree.map(shape_of, state)


def device_name(devices: int | None = None) -> str:
    """The name of the hardware that a run on `devices` devices uses.

    >>> device_name(), device_name(2)
    ('cpu', '2 × cpu')
    """
    kind = jax.devices()[0].device_kind
    return kind if devices in (None, 1) else f"{devices} × {kind}"
