"""Reading a stream batch by batch, epoch after epoch, from any position.

A position can be restored in three ways, the best that the source allows: by the iterator's own state (Grain;
torchdata's StatefulDataLoader; anything with `get_state` and `set_state`, or `state_dict` and `load_state_dict`); by
starting its epoch again and skipping batches, where an epoch does not depend on the ones before (a function of the
epoch; a PyTorch DataLoader, which is seeded for each epoch); or by starting from the first batch.
"""

import base64
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ._sources import DataError, Stream, positional

_UNKNOWN = object()


class Batches:
    """The batches of a stream as trees of numpy or jax arrays, from the first epoch on.

    >>> batches = Batches(Stream(lambda epoch: [np.full(2, epoch), np.full(2, epoch + 0.5)], epochs=2))
    >>> [float(batch[0]) for batch in batches]
    [0.0, 0.5, 1.0, 1.5]
    >>> batches = Batches(Stream(lambda epoch: [np.full(2, epoch), np.full(2, epoch + 0.5)]))
    >>> batches.restore({"epoch": 5, "batch": 1, "total": 11, "state": None})
    >>> float(next(batches)[0])
    5.5
    """

    def __init__(self, stream: Stream, seed: int = 0):
        self._source, self._epochs, self._seed = stream.source, stream.epochs, seed
        self._is_torch = _is_torch_loader(self._source)
        self._generators = _generators(self._source) if self._is_torch else {}
        # The epochs of others may depend on the ones before, such as a shuffle with a generator of its own.
        self._makes_iterables = callable(self._source) and not hasattr(self._source, "__iter__")
        self._by_epoch = self._is_torch or (self._makes_iterables and positional(self._source) == 1)
        self._epoch = self._batch = self._total = 0
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Any:
        while True:
            if self._iterator is None:
                if self._epochs is not None and self._epoch >= self._epochs:
                    raise StopIteration
                self._iterator = self._open()
            batch = next(self._iterator, _UNKNOWN)
            if batch is not _UNKNOWN:
                self._batch, self._total = self._batch + 1, self._total + 1
                return _arrays(batch)
            if self._iterator is self._source:  # It can be read once.
                raise StopIteration
            if self._batch == 0:
                raise DataError(
                    f"the data have no batch in epoch {self._epoch}; check the source of the data"
                )
            self._iterator, self._epoch, self._batch = None, self._epoch + 1, 0

    def position(self) -> dict[str, Any]:
        """Where the next batch is, as JSON."""
        state = _state_of(self._source, self._iterator)
        return {"epoch": self._epoch, "batch": self._batch, "total": self._total, "state": state}

    def restore(self, position: Mapping[str, Any]) -> str | None:
        """Continues at a position. **Returns** what a person should know: None where the iterator has a state."""
        said = None if position.get("state") is not None and self._load(position) else self._skip(position)
        for _ in range(position.get("since", 0)):
            next(self)
        return said

    def _skip(self, position: Mapping[str, Any]) -> str | None:
        total = position["total"]
        if self._by_epoch:
            self._epoch, skip = position["epoch"], position["batch"]
            self._total = total - skip
        else:
            self._epoch, skip = 0, total
        for _ in range(skip):
            try:
                next(self)
            except StopIteration:
                raise DataError(
                    f"the data end after {self._total} batches, but the checkpoint is after {total}; give the data it "
                    "was trained on"
                ) from None
        if not skip or self._by_epoch:
            return None
        return (
            f"the data have no state to restore: they were started again and {skip} batches were skipped, which is "
            "exact if they give the same batches every time"
        )

    def _load(self, position: Mapping[str, Any]) -> bool:
        self._epoch = position["epoch"]
        state = decoded(position["state"])
        if hasattr(self._source, "load_state_dict"):
            self._source.load_state_dict(state)
            self._iterator = self._open()
        else:
            self._iterator = self._open()
            load = getattr(self._iterator, "set_state", None) or getattr(
                self._iterator, "load_state_dict", None
            )
            if load is None:
                self._iterator = None
                return False
            load(state)
        self._batch, self._total = position["batch"], position["total"]
        return True

    def _open(self) -> Iterator[Any]:
        """The iterator of the present epoch."""
        if self._is_torch:
            # A loader draws its order and the seeds of its workers from these: each epoch by itself, then.
            sys.modules["torch"].manual_seed(_mixed(self._seed, self._epoch))
            for generator, seed in self._generators.items():
                generator.manual_seed(_mixed(seed, self._epoch))
        source: Any = self._source
        if self._makes_iterables:
            source = source(self._epoch) if self._by_epoch else source()
        return iter(source) if hasattr(source, "__iter__") else (source[k] for k in range(len(source)))


def _is_torch_loader(source: Any) -> bool:
    """Nothing of torch is imported here: whoever has a loader has imported it."""
    return "torch" in sys.modules and any(
        kind.__module__.startswith("torch.utils.data.dataloader") for kind in type(source).__mro__
    )


def _generators(loader: Any) -> dict[Any, int]:
    """The random generators that a PyTorch loader and its samplers have of their own, with their seeds."""
    owners = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    owners.append(getattr(owners[-1], "sampler", None))
    found = [getattr(owner, "generator", None) for owner in owners]
    return {each: each.initial_seed() for each in found if each is not None}


def _mixed(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence((seed % 2**64, epoch)).generate_state(1, np.uint64)[0] >> 1)


def _state_of(source: Any, iterator: Any) -> Any:
    """The state of an iterator as JSON; None if it has none, or one that JSON cannot hold."""
    if iterator is None:
        return None
    get = next(
        (
            method
            for owner, name in ((source, "state_dict"), (iterator, "get_state"), (iterator, "state_dict"))
            if (method := getattr(owner, name, None)) is not None and not inspect.isclass(owner)
        ),
        None,
    )
    try:
        return None if get is None else encoded(get())
    except TypeError:
        return None


def encoded(value: Any) -> Any:
    """A state as JSON, with bytes, arrays and tuples marked; a `TypeError` for anything else.

    >>> decoded(encoded({"a": (1, b"x"), 2: np.ones(2, np.float32)}))
    {'a': (1, b'x'), 2: array([1., 1.], dtype=float32)}
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case list():
            return [encoded(each) for each in value]
        case tuple():
            return {"tuple": [encoded(each) for each in value]}
        case Mapping():
            return {"dict": [[encoded(key), encoded(each)] for key, each in value.items()]}
    if hasattr(value, "__array__") and (array := np.asarray(value)).dtype != object:
        data = base64.b64encode(array.tobytes()).decode()
        kind = "tensor" if type(value).__module__.startswith("torch") else "array"
        return {kind: data, "dtype": array.dtype.str, "shape": list(array.shape)}
    raise TypeError(f"a {type(value).__name__} is no part of a state")


def decoded(value: Any) -> Any:
    """The inverse of `encoded`."""
    match value:
        case list():
            return [decoded(each) for each in value]
        case {"bytes": text}:
            return base64.b64decode(text)
        case {"tuple": items}:
            return tuple(decoded(each) for each in items)
        case {"dict": items}:
            return {decoded(key): decoded(each) for key, each in items}
        case {"array": data} | {"tensor": data}:
            array = np.frombuffer(base64.b64decode(data), value["dtype"]).reshape(value["shape"]).copy()
            return sys.modules["torch"].from_numpy(array) if "tensor" in value else array
    return value


def _arrays(batch: Any) -> Any:
    """A batch as numpy arrays; those of jax stay where they are."""

    def convert(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        array = np.asarray(leaf)
        if array.dtype.kind not in "biufcV":
            raise DataError(
                f"batch{jax.tree_util.keystr(path)} is a {type(leaf).__name__} and not a number or an array; turn it "
                "into numbers, or leave it out"
            )
        return array

    return jax.tree_util.tree_map_with_path(convert, batch)
