"""What the host gives to each call of the device: nothing, the rows of arrays, or whole batches.

A feed belongs to one run. It is asked for the next steps, says where it is in a checkpoint, and continues from there.
The compiled call takes a `Fed`: arrays that are the same in every call, and those of each step along a leading axis.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from lapwing.task import Arrays, Batch, DataError, Once, Stream, Task

from ._config import FitConfig
from ._prefetch import Prefetch

# Arrays to the device; the flag says whether their second axis is that of a batch.
Put = Callable[[Any, bool], Any]


class Fed(NamedTuple):
    """The arguments of a call from the host: the same for all runs (`shared`), for all steps of a run (`own`), and one
    entry of `each` for each step.

    >>> fed = Fed(shared={"table": np.arange(9)}, each=np.array([[1, 2], [3, 4]]))
    >>> fed.each[0], fed.own
    (array([1, 2]), ())
    """

    shared: Any = ()
    own: Any = ()
    each: Any = ()


class Feed(Protocol):
    """The host's side of a task's data, for one run."""

    waited: float | None
    """Seconds that the host waited for what `take` returned last; None if it never waits."""
    is_stream: bool
    """Whether batches are used up: what was read is not read again after a rollback."""
    can_go_ahead: bool
    """Whether `take` can be called for steps that may not be made after all."""

    def available(self, count: int) -> int:
        """How many of the next `count` steps can be made in one call; 0 where the data end. May wait."""
        ...

    def take(self, step: int, count: int) -> Fed:
        """What the steps from `step` on need; they are available."""
        ...

    def is_first_pass(self, step: int) -> bool:
        """Whether a step, one of the newest, sees data that no step before it has seen, as far as that is known."""
        ...

    def roll_back(self, number: int) -> None:
        """The run returns to an earlier step for the `number`-th time, and continues with other data."""
        ...

    def position(self) -> Any:
        """Where the feed is, as JSON."""
        ...

    def restore(self, position: Any, step: int, rollbacks: int) -> None:
        """Continues at a position that is None in checkpoints without one."""
        ...

    def close(self) -> None: ...


def make_feed(task: Task, config: FitConfig, say: Callable[[str], None], put: Put | None = None) -> Feed:
    """The feed of a task's data. `put` brings arrays to the devices of the run."""
    source = task.source
    if isinstance(source, Arrays):
        return ArrayFeed(source, config, put or _put)
    if isinstance(source, Stream):
        # A compiled call takes numpy's arrays of a CPU as they are; to make them jax's first would take 40 µs.
        is_there = put is None and jax.default_backend() == "cpu"
        return StreamFeed(source, config, (lambda tree, _: tree) if is_there else put or _put, say)
    return NoFeed()


def _put(tree: Any, has_batch: bool) -> Any:
    return jax.device_put(tree)


def check_data(task: Task) -> None:
    """Refuses a function of key and step that reads batches from somewhere else: jax traces it once, so every step
    would train on the first of them.

    >>> import numpy as np
    >>> batches = iter(np.arange(9.0).reshape(9, 1))
    >>> task = Task(
    ...     init=lambda key: np.zeros(1), data=lambda key, step: next(batches), loss=lambda w, x: (w.sum() * x, {})
    ... )
    >>> check_data(task)
    Traceback (most recent call last):
    lapwing.task._sources.DataError: data(key, step) gives another batch each time it is traced, ...
    """
    if isinstance(task.source, Arrays | Stream):
        return
    key = jax.eval_shape(lambda: jax.random.key(0))
    memory = () if task.memory is None else (jax.eval_shape(task.memory, key),)
    arguments = key, jax.ShapeDtypeStruct((), np.int32), *memory
    one, other = (_captured(task.source, arguments) for _ in range(2))
    if len(one) != len(other) or not all(map(np.array_equal, one, other)):
        raise DataError(
            "data(key, step) gives another batch each time it is traced, and jax traces it only once: every step would "
            "train on the first batch; give the iterable itself as data, or make the batch from key and step alone"
        )


def _captured(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[np.ndarray]:
    """The arrays that a function of arrays has as constants. A function object of its own: jax keeps traces."""
    traced = jax.make_jaxpr(lambda *given: function(*given))(*arguments)
    return [np.asarray(constant) for constant in traced.consts if np.ndim(constant)]


class NoFeed:
    """A function of key and step needs nothing from the host."""

    waited: float | None = None
    is_stream = False
    can_go_ahead = True

    def available(self, count: int) -> int:
        return count

    def take(self, step: int, count: int) -> Fed:
        return Fed()

    def is_first_pass(self, step: int) -> bool:
        return True

    def roll_back(self, number: int) -> None:
        pass

    def position(self) -> Any:
        return None

    def restore(self, position: Any, step: int, rollbacks: int) -> None:
        pass

    def close(self) -> None:
        pass


class ArrayFeed(NoFeed):
    """The rows of all batches of some epochs, from which each step takes its own. They depend on the seed, the epoch
    and the number of rollbacks alone, so nothing has to be saved, and nothing is sent for most calls."""

    def __init__(self, source: Arrays, config: FitConfig, put: Put):
        self._source, self._config = source, config
        self._shared = put(source.arrays, False)
        self._put = put
        self._rollbacks = 0
        self.can_go_ahead = source.epochs is None  # Otherwise it counts what was taken.
        self._epochs: tuple[int, ...] = ()  # Whose rows are on the device.
        self._rows: Any = None
        self._next = 0

    def available(self, count: int) -> int:
        if self._source.epochs is None:
            return count
        return max(0, min(count, self._source.epochs * self._source.batches - self._next))

    def take(self, step: int, count: int) -> Fed:
        first, last = step // self._source.batches, (step + count - 1) // self._source.batches
        if self._config.overfit_batch:
            first = last = 0
        if not {first, last} <= {*self._epochs}:
            kept = table_epochs(self._source, self._config)
            self._epochs = tuple(range(first, first + kept))
            table = np.empty((kept, self._source.batches, self._source.batch_size), np.int32)
            for epoch in self._epochs:
                table[epoch % kept] = self._order(epoch).reshape(table.shape[1:])
            self._rows = self._put(table, False)
        self._next = step + count
        return Fed(self._shared, self._rows)

    def is_first_pass(self, step: int) -> bool:
        return step < self._source.batches

    def roll_back(self, number: int) -> None:
        self._rollbacks, self._epochs = number, ()

    def restore(self, position: Any, step: int, rollbacks: int) -> None:
        self._rollbacks, self._next = rollbacks, step

    def _order(self, epoch: int) -> np.ndarray:
        rows = np.arange(self._source.rows, dtype=np.int32)
        if self._source.shuffle:
            np.random.default_rng((self._config.seed, self._rollbacks, epoch)).shuffle(rows)
        return rows[: self._source.batches * self._source.batch_size]


def table_epochs(source: Arrays, config: FitConfig) -> int:
    """How many epochs' rows are on the device: all that a call can reach."""
    return 2 + config.steps_per_call // source.batches


class StreamFeed:
    """Batches read by a thread while the device computes."""

    is_stream = True
    can_go_ahead = False

    def __init__(self, source: Stream, config: FitConfig, put: Put, say: Callable[[str], None]):
        self._config, self._put, self._say = config, put, say
        self._reader = Prefetch(
            source, config.seed, config.steps_per_call, lambda batches: put(batches, True)
        )
        self._first: Any = None  # With `overfit_batch`, the only batch.
        self._waiting = 0.0
        self.waited: float | None = 0.0

    def available(self, count: int) -> int:
        if self._first is not None:
            return count
        started = time.perf_counter()
        there = self._reader.available(count)
        self._waiting += time.perf_counter() - started
        return there

    def take(self, step: int, count: int) -> Fed:
        self.waited, self._waiting = self._waiting, 0.0
        if not self._config.overfit_batch:
            return Fed(each=self._reader.take(count))
        if self._first is None:
            self._first = self._reader.take(1)
            self._reader.close()
        return Fed(each=jax.tree.map(lambda leaf: jax.numpy.repeat(leaf, count, 0), self._first))

    def is_first_pass(self, step: int) -> bool:
        position = self.position()
        return not position or not position.get("epoch")

    def roll_back(self, number: int) -> None:
        """Continues with the next batches, which are other data."""

    def position(self) -> Any:
        return self._reader.position()

    def restore(self, position: Any, step: int, rollbacks: int) -> None:
        if self._config.overfit_batch:
            return
        start = position or {"epoch": 0, "batch": 0, "total": step, "state": None}
        if said := self._reader.restore(start, step):
            self._say(said)

    def close(self) -> None:
        self._reader.close()


def batch_of(source: Arrays | Stream, fed: Fed, step: jax.Array) -> Batch:
    """The batch of a step from what it was fed, of which `each` has no axis of steps here."""
    if isinstance(source, Stream):
        return fed.each
    epoch, batch = step // source.batches, step % source.batches
    rows = fed.own[epoch % fed.own.shape[0], batch]
    return jax.tree.map(lambda array: array[rows], fed.shared)


def first_feds(task: Task, config: FitConfig, count: int = 1) -> list[Fed]:
    """What the first steps are fed, without an axis of steps: for tracing and for checks. They may be fewer, if the
    data end. An iterator that can be read only once is not used up by this.

    >>> import jax.numpy as jnp
    >>> from lapwing.task import Arrays
    >>> task = Task(
    ...     init=lambda key: jnp.zeros(()),
    ...     data=Arrays(np.arange(6.0), batch_size=2),
    ...     loss=lambda w, x: (jnp.sum(w - x), {}),
    ... )
    >>> len(first_feds(task, FitConfig(), count=2))
    2
    """
    if isinstance(task.source, Stream) and isinstance(task.source.source, Once):
        seen = Stream(task.source.source.peek(count), epochs=1)
        if not seen.source:
            raise DataError("the data have no batch; an iterator that was read before cannot be read again")
        task = dataclasses.replace(task, data=seen)
    feed = make_feed(task, dataclasses.replace(config, steps_per_call=1), say=lambda _: None)
    feds: list[Fed] = []
    try:
        while len(feds) < count and feed.available(1):
            fed = feed.take(len(feds), 1)
            feds.append(fed._replace(each=jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[0]), fed.each)))
    finally:
        feed.close()
    return feds
