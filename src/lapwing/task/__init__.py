"""What to train: a `Task` is a handful of pure functions that `lapwing.train.fit` and `lapwing.check` both read."""

from ._adapters import equinox, linen, nnx
from ._callback import Callback, CallbackEvent
from ._iterate import Batches
from ._published_adam import adam_as_published
from ._rounds import Rounds, Turn
from ._sources import Arrays, DataError, Once, Source, Stream, source_of
from ._task import Batch, Key, Loss, Memory, Metrics, ModelState, Params, Penalty, Task, TaskError

__all__ = [
    "Arrays",
    "Batch",
    "Batches",
    "Callback",
    "CallbackEvent",
    "DataError",
    "Key",
    "Loss",
    "Memory",
    "Metrics",
    "ModelState",
    "Once",
    "Params",
    "Penalty",
    "Rounds",
    "Source",
    "Stream",
    "Task",
    "TaskError",
    "Turn",
    "adam_as_published",
    "equinox",
    "linen",
    "nnx",
    "source_of",
]
