"""A loader that saves its state must continue from it: the batches after a restored position are those of a reading
that was not interrupted."""

from typing import Any

import jax
import numpy as np

from lapwing.task import Batches, Stream

from ._fresh import digest_of
from ._report import CheckInputError, Report, fail

_POSITIONS, _AFTER = (1, 3, 6), 8


def check_resumed(source: Any, seed: int) -> Report:
    """Reads a few batches, saves, and compares what follows with what a new reader restores."""
    if not isinstance(source, Stream) or not callable(getattr(source.source, "__iter__", None)):
        raise CheckInputError("the data have no state to save")
    for position in _POSITIONS:
        reader = Batches(source, seed)
        _read(reader, position)
        saved = reader.position()
        if saved["state"] is None:
            raise CheckInputError("the data have no state to save")
        expected = _read(reader, _AFTER)
        again = Batches(source, seed)
        again.restore(saved)
        found = _read(again, _AFTER)
        for number, (one, other) in enumerate(zip(expected, found, strict=False)):
            if one != other:
                fail(
                    "fresh_data",
                    f"the data are not resumed where they were: restored after {position} batches, the loader returns "
                    f"another batch {position + number} than a loader that was not interrupted",
                    "the state that the loader saves (get_state, state_dict): position, epoch, seeds, buffers, and "
                    "flags such as whether it has begun",
                    [f"batch {position + number}"],
                )
    return Report("fresh_data", f"restored in {len(_POSITIONS)} places, the loader returns the same batches")


def _read(reader: Any, count: int) -> list[bytes]:
    found = []
    for _, batch in zip(range(count), reader, strict=False):
        found.append(digest_of(jax.tree.map(np.asarray, batch)))
    return found
