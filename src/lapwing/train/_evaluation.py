"""Evaluations: the task's own function of the parameters, or a pass over its validation data.

The parameters are their exponential moving average where the run keeps one.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.task import Arrays, Batch, Batches, DataError, Metrics, Stream, Task, source_of

from ._config import FitConfig
from ._gradient import full_loss
from ._state import State


def make_evaluation(task: Task, config: FitConfig) -> Callable[[State], Mapping[str, Any]] | None:
    """The evaluation of a state, compiled; None if the task has none.

    >>> import jax.numpy as jnp
    >>> from lapwing.train import initial_state
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()),
    ...     data=lambda key, step: 1.0,
    ...     loss=lambda w, x: ((w - x) ** 2, {}),
    ...     evaluate=lambda w, key: {"error": jnp.abs(w - 1.0)},
    ... )
    >>> state, _ = initial_state(task, FitConfig())
    >>> make_evaluation(task, FitConfig())(state)
    {'error': Array(1., dtype=float32)}
    """
    if task.validation is not None:
        return Validation(task, config)
    if task.evaluate is None:
        return None
    evaluate = task.evaluate
    return jax.jit(lambda state: evaluate(_params(state), _key(state), *_model(task, state)))


def evaluation_names(task: Task, config: FitConfig, state: State) -> list[str] | None:
    """The metrics of an evaluation; None if it takes a batch of the host to know them. Nothing is computed.

    >>> import jax.numpy as jnp
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()),
    ...     data=lambda key, step: 1.0,
    ...     loss=lambda w, x: ((w - x) ** 2, {}),
    ...     evaluate=lambda w, key: {"error": jnp.abs(w - 1.0)},
    ... )
    >>> from lapwing.train import initial_state
    >>> evaluation_names(task, FitConfig(), initial_state(task, FitConfig())[0])
    ['eval_error']
    """
    evaluate = make_evaluation(task, config)
    if evaluate is None:
        return []
    shapes = evaluate.shapes(state) if isinstance(evaluate, Validation) else jax.eval_shape(evaluate, state)
    return None if shapes is None else [f"eval_{name}" for name in shapes]


class Validation:
    """The means of the metrics over all examples of the validation data."""

    def __init__(self, task: Task, config: FitConfig):
        self._task, self._config = task, config
        self._measure = jax.jit(self._measured)
        self._on_device: Any = None

    def __call__(self, state: State) -> Mapping[str, Any]:
        total: Metrics = {}
        count = 0
        for batch in self._batches():
            size = batch_size(batch, self._task.batch_axis)
            values = self._measure(state, batch)
            total = {name: total.get(name, 0.0) + size * value for name, value in values.items()}
            count += size
        if not count:
            raise DataError("the validation data have no batch; give an iterable that can be read again")
        return {name: value / count for name, value in total.items()}

    def shapes(self, state: State) -> Metrics | None:
        """Those of the metrics; None if the data come from the host."""
        source = _source(self._task)
        if isinstance(source, Stream):
            return None
        size = min(source.batch_size, source.rows)
        batch = jax.eval_shape(lambda arrays: _rows(arrays, 0, size), source.arrays)
        return jax.eval_shape(self._measured, state, batch)

    def _measured(self, state: State, batch: Batch) -> Metrics:
        task = self._task
        if task.evaluate is not None:
            return task.evaluate(_params(state), batch, *_model(task, state))
        loss, aux = full_loss(task, self._config)(_params(state), batch, state.model, _key(state))
        return {"loss": loss, **aux.metrics}

    def _batches(self) -> Iterator[Batch]:
        source = _source(self._task)
        if isinstance(source, Stream):
            yield from Batches(Stream(source.source, epochs=1), self._config.seed)
            return
        if self._on_device is None:
            self._on_device = jax.device_put(source.arrays)
        for start in range(0, source.rows, source.batch_size):
            yield _rows(self._on_device, start, min(source.batch_size, source.rows - start))


def _source(task: Task) -> Arrays | Stream:
    source = source_of(task.validation)
    assert isinstance(source, Arrays | Stream)
    return source


@functools.partial(jax.jit, static_argnums=2)
def _rows(arrays: Any, start: int, size: int) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), arrays)


def batch_size(batch: Batch, batch_axis: Any) -> int:
    """The number of examples in a batch: the length of its batch axis.

    >>> batch_size({"x": jnp.zeros((5, 3)), "scale": jnp.ones(())}, {"x": 0, "scale": None})
    5
    """
    axes = jax.tree.broadcast(batch_axis, batch, is_leaf=lambda axis: axis is None)
    pairs = zip(jax.tree.leaves(batch), jax.tree.leaves(axes, is_leaf=lambda axis: axis is None), strict=True)
    return next((jnp.shape(leaf)[axis] for leaf, axis in pairs if axis is not None), 1)


def _params(state: State) -> Any:
    return state.params if state.ema is None else state.ema


def _key(state: State) -> jax.Array:
    return jax.random.wrap_key_data(state.keys.evaluate)


def _model(task: Task, state: State) -> tuple[Any, ...]:
    return (state.model,) if task.has_state else ()
