"""What to train: a `Task` is a handful of pure functions that `lapwing.train.fit` and `lapwing.check` both read."""

from ._rounds import Rounds, Turn
from ._task import Batch, Key, Loss, Memory, Metrics, Params, Penalty, Task, TaskError

__all__ = [
    "Batch",
    "Key",
    "Loss",
    "Memory",
    "Metrics",
    "Params",
    "Penalty",
    "Rounds",
    "Task",
    "TaskError",
    "Turn",
]
