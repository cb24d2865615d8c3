"""Where batches come from: a function on the device, arrays in memory, or anything that Python can iterate.

`Task.data` takes any of them; `source_of` says which it is. A function of key and step is traced with the step.
`Arrays` stay on the device and each step gathers its rows, so they are an argument of the compiled step and not a
constant in it. A `Stream` is read by a thread while the device computes (`lapwing.train._feed`).
"""

import inspect
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lapwing.core import LapwingError


class DataError(LapwingError, ValueError):
    """Data that cannot be trained on; the sentence says what to give instead."""


@dataclass(frozen=True)
class Arrays:
    """A tree of arrays whose rows are the examples, in batches.

    **Arguments:**

    - `arrays`: a tree of arrays with one length along their first axis.
    - `batch_size`: rows of a batch. What does not fill a batch at the end of an epoch is left out of that epoch in
      training, and is a smaller batch in validation.
    - `shuffle`: another order in every epoch, from the seed of the run. Validation is never shuffled.
    - `epochs`: the run ends after this many; None: after `steps` steps.

    >>> data = Arrays({"x": np.zeros((100, 3)), "y": np.zeros(100)}, batch_size=32)
    >>> data.rows, data.batches
    (100, 3)
    """

    arrays: Any
    batch_size: int
    shuffle: bool = True
    epochs: int | None = None

    def __post_init__(self) -> None:
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(self.arrays)]
        lengths = {shape[0] if shape else None for shape in shapes}
        if not shapes or None in lengths or len(lengths) > 1:
            found = ", ".join(map(str, shapes)) or "none"
            raise DataError(
                f"arrays should have one length along their first axis, but the shapes are: {found}"
            )
        if not 1 <= self.batch_size <= self.rows:
            raise DataError(
                f"batch_size should be from 1 to the {self.rows} rows of the arrays, but is {self.batch_size}"
            )
        _check_epochs(self.epochs)

    @property
    def rows(self) -> int:
        return len(jax.tree.leaves(self.arrays)[0])

    @property
    def batches(self) -> int:
        """Whole batches in an epoch."""
        return self.rows // self.batch_size


@dataclass(frozen=True)
class Stream:
    """Batches that the host makes: trees of arrays, of any length.

    **Arguments:**

    - `source`: an iterable (a list, a PyTorch DataLoader, a Grain DataLoader or dataset), a function without arguments
      that returns one, or a function of the epoch, counted from 0. An iterator that can be read only once ends the run.
    - `epochs`: the run ends after this many; None: after `steps` steps.
    - `prefetch`: calls for which batches are read ahead.

    A plain iterable as `Task.data` is `Stream(iterable)`.

    >>> Stream(lambda epoch: iter([np.ones(3) * epoch]), epochs=2).epochs
    2
    """

    source: Any
    epochs: int | None = None
    prefetch: int = 2

    def __post_init__(self) -> None:
        _check_epochs(self.epochs)
        if self.prefetch < 1:
            raise DataError(f"prefetch should be at least 1, but is {self.prefetch}")
        if not callable(self.source) and not _is_iterable(self.source):
            raise DataError(
                f"a Stream reads an iterable, or a function that returns one, not a {_kind(self.source)}"
            )
        object.__setattr__(self, "source", peekable(self.source))


class Once:
    """An iterator, which can be read only once, with a look ahead for the checks: what they see is trained on too.

    >>> batches = Once(iter("abc"))
    >>> batches.peek(2), list(batches)
    (['a', 'b'], ['a', 'b', 'c'])
    """

    def __init__(self, iterator: Iterator[Any]):
        self._iterator = iterator
        self._ahead: deque[Any] = deque()

    def __iter__(self) -> "Once":
        return self

    def __next__(self) -> Any:
        return self._ahead.popleft() if self._ahead else next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        """The methods with which some iterators save their state."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def peek(self, count: int) -> list[Any]:
        """The next `count` batches, or as many as there are."""
        if hasattr(self, "get_state") and hasattr(self, "set_state"):  # The state counts what was looked at.
            before = self.get_state()
            seen = list(itertools.islice(self._iterator, count))
            self.set_state(before)
            return seen
        self._ahead.extend(itertools.islice(self._iterator, max(0, count - len(self._ahead))))
        return list(itertools.islice(self._ahead, count))


def peekable(data: Any) -> Any:
    """An iterator as `Once`; everything else as it is."""
    return Once(data) if isinstance(data, Iterator) and not isinstance(data, Once) else data


Function = Callable[..., Any]
Source = Function | Arrays | Stream
"""What `Task.data` can be: a function of key and step, arrays, or a stream of batches from the host."""


def source_of(data: Any, *, with_memory: bool = False) -> Source:
    """The source that is meant by `Task.data`: a function of key and step, or an `Arrays` or `Stream`.

    >>> source_of([np.ones(3), np.ones(3)])  # doctest: +ELLIPSIS
    Stream(source=[...
    >>> source_of(3)
    Traceback (most recent call last):
    lapwing.task._sources.DataError: data should be a function of key and step, Arrays, or an iterable of batches, ...
    """
    if isinstance(data, Arrays | Stream):
        return data
    if _is_iterable(data) and not _is_batch(data):
        return Stream(data)
    if callable(data):
        return _function(data, with_memory)
    if _is_batch(data):
        raise DataError(
            "data is a tree of arrays; write lapwing.task.Arrays(data, batch_size=...) to train on batches of its rows"
        )
    raise DataError(
        f"data should be a function of key and step, Arrays, or an iterable of batches, not a {_kind(data)}"
    )


def positional(function: Callable[..., Any]) -> int | None:
    """The number of positional arguments that a function needs; None if that cannot be known.

    >>> positional(lambda key, step, scale=1: None), positional(print)
    (2, None)
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds and parameter.default is parameter.empty for parameter in parameters)


def _function(data: Callable[..., Any], with_memory: bool) -> Source:
    """A function of key and step; one with fewer arguments makes an iterable."""
    count = positional(data)
    if count is not None and count < 2:
        if {"key", "step"} & {*inspect.signature(data).parameters}:
            raise DataError(
                "data should be a function of key and step, and takes one of them; write data(key, step)"
            )
        return Stream(data)
    if inspect.isgeneratorfunction(inspect.unwrap(data)):
        raise DataError(
            "data(key, step) is a generator; return the batch of that step, or give a generator without arguments, "
            "which is read batch by batch"
        )
    expected = 3 if with_memory else 2
    if count is not None and count != expected:
        names = "key, step, memory" if with_memory else "key, step"
        raise DataError(f"data should be a function of {names}, but it has {count} arguments")
    return data


def _is_iterable(data: Any) -> bool:
    """Whether batches can be read from it; arrays can be iterated too, but are no batches."""
    if isinstance(data, jax.Array | np.ndarray | Mapping | str | bytes):
        return False
    # A sequence by index, such as Grain's MapDataset, has no __iter__.
    return isinstance(data, Iterable) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def _is_batch(data: Any) -> bool:
    """Whether it is arrays rather than batches: an array, a dict of arrays, or a tuple of arrays."""
    if isinstance(data, Iterator) or not isinstance(data, Mapping | tuple | jax.Array | np.ndarray):
        return False
    leaves = jax.tree.leaves(data)
    return bool(leaves) and all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)


def _check_epochs(epochs: int | None) -> None:
    if epochs is not None and epochs < 1:
        raise DataError(f"epochs should be at least 1, or None for no limit, but is {epochs}")


def _kind(data: Any) -> str:
    return type(data).__name__
