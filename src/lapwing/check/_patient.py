"""A task as the doctor sees it: everything the checks need, made once.

The layer of the training loop stands below this one, so a task is known by its names only: `init`, `batch`, `loss`, and
where they are there `memory`, `prepare`, `trainable`, `optimizer` and `penalties`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ._parts import scalar_of


@dataclass(frozen=True)
class Patient:
    """A task with the parameters and batches that a run with this key would begin with."""

    task: Any
    key: jax.Array

    @functools.cached_property
    def params(self) -> Any:
        return self.task.init(self._keys[0])

    @functools.cached_property
    def trainable(self) -> Any:
        mask = getattr(self.task, "trainable", None)
        return None if mask is None else mask(self.params)

    @functools.cached_property
    def _keys(self) -> jax.Array:
        return jax.random.split(self.key, 4)

    @functools.cached_property
    def _draw(self) -> Callable[..., Any]:
        return jax.jit(lambda key, step: self._drawn_with(jax.random.fold_in(key, step), step))

    def _drawn_with(self, key: jax.Array, step: Any) -> Any:
        """A batch; a task with a memory draws it with the memory that a run begins with."""
        memory = getattr(self.task, "memory", None)
        return self.task.data(key, step) if memory is None else self.task.data(key, step, memory(key))

    @functools.cached_property
    def prepare(self) -> Callable[[Any], Any] | None:
        """What is done to a batch before the loss sees it, such as an attack; None where nothing is."""
        if getattr(self.task, "prepare", None) is None:
            return None
        params, key = self.params, self._keys[2]
        return jax.jit(lambda batch: self.task.prepare(params, batch, key))

    @functools.cached_property
    def shapes(self) -> tuple[Any, Any]:
        """The parameters and a batch without their numbers: enough for a trace, and nothing is compiled."""

        def first(key: jax.Array) -> tuple[Any, Any]:
            params, batch = self.task.init(key), self._drawn_with(key, np.int32(0))
            prepare = getattr(self.task, "prepare", None)
            return params, batch if prepare is None else prepare(params, batch, key)

        return jax.eval_shape(first, self.key)

    def drawn(self, step: int) -> Any:
        """The batch of a step, as the task draws it."""
        return self._draw(self._keys[1], np.int32(step))

    def batch(self, step: int) -> Any:
        """The batch of a step, as the loss sees it."""
        drawn = self.drawn(step)
        return drawn if self.prepare is None else self.prepare(drawn)

    @property
    def has_data(self) -> bool:
        return bool(jax.tree.leaves(self.shapes[1]))

    def loss(self, params: Any, batch: Any) -> jax.Array:
        """The scalar that is made small, penalties included."""
        penalties: Mapping[str, Any] = getattr(self.task, "penalties", None) or {}
        return scalar_of(self.task.loss(params, batch)) + sum(
            each.weight * each.of(params) for each in penalties.values()
        )

    @functools.cached_property
    def compiled_loss(self) -> Callable[..., Any]:
        return jax.jit(self.loss)

    @functools.cached_property
    def compiled_step(self) -> Callable[..., Any]:
        return jax.jit(self.step)

    def step(self, state: Any, batch: Any) -> Any:
        """One update by the task's optimizer, at a rate that hardly moves; and the loss."""
        loss, slopes = jax.value_and_grad(self.loss)(state[0], batch)
        return self.updated(state, slopes), loss

    def updated(self, state: Any, slopes: Any) -> Any:
        params, optimizer = state
        direction, optimizer = self.task.optimizer.update(slopes, optimizer, params)
        return jax.tree.map(lambda p, d: p - (1e-6 * d).astype(p.dtype), params, direction), optimizer
