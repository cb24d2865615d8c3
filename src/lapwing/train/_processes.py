"""A training by several processes, each with some of the devices; the first one has the run folder.

All of them make the same steps and decide the same after each, since they decide by metrics that all of them have. What
only one can know (a command in the inbox, Ctrl-C, the time, what a checkpoint holds) the first one tells the others.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from lapwing.core import LapwingError
from lapwing.journal import from_json, to_json

from ._config import ConfigError

_LOST_AFTER_S = 30  # A process that has not been heard of for so long is taken for dead.
_LEAST_BYTES = 256  # A message is as long as a power of two, so that few lengths are compiled.


class LostProcessError(LapwingError, RuntimeError):
    """Another process of the training has ended, and nothing more can be computed together."""


def join_processes(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Joins the processes of a training, before anything else is done with jax.

    `coordinator` is the host and a free port of the first process, the same for all; "auto" leaves it, and the other
    two, to what the scheduler tells (SLURM, Open MPI, Kubernetes, as `jax.distributed.initialize` knows them).
    """
    try:
        jax.distributed.initialize(
            None if coordinator == "auto" else coordinator,
            processes,
            process_id,
            heartbeat_timeout_seconds=_LOST_AFTER_S,
            shutdown_timeout_seconds=_LOST_AFTER_S,
        )
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"cannot join the other processes at {coordinator!r}: {reason}; the coordinator should be the host and a "
            "free port of the first process, or auto where a scheduler tells"
        ) from error


def is_first() -> bool:
    """Whether this process has the run folder; a process that is alone has it."""
    return jax.process_index() == 0


def are_several() -> bool:
    return jax.process_count() > 1


def told(value: Any) -> Any:
    """What the first process says, to everybody: anything that JSON can hold.

    >>> told({"learning_rate": 0.1})
    {'learning_rate': 0.1}
    """
    if not are_several():
        return value
    said = np.frombuffer(to_json(value).encode(), np.uint8)
    size = int(_from_first(np.int64(len(said))))
    room = max(_LEAST_BYTES, 1 << size.bit_length())
    text = _from_first(np.resize(np.append(said, np.zeros(room, np.uint8)), room))
    return value if is_first() else from_json(bytes(np.asarray(text, np.uint8)[:size]).decode())


def shared(tree: Any) -> Any:
    """The arrays of the first process, to everybody; the others give a tree of the same shapes."""
    return _from_first(tree) if are_several() else tree


def _from_first(tree: Any) -> Any:
    return multihost_utils.broadcast_one_to_all(jax.device_get(tree))


@contextlib.contextmanager
def losses_told() -> Iterator[None]:
    """Says what it means that something could not be computed together."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        # The runtime's own errors begin with a code such as UNKNOWN; they come as ValueError or JaxRuntimeError.
        if not are_several() or not re.match("[A-Z_]+: ", str(error)):
            raise
        first_line = str(error).splitlines()[0]
        raise LostProcessError(
            f"another process of this training has ended, or cannot be reached ({first_line}); "
            "start all of them again with `lapwing resume`: they go on from the newest checkpoint"
        ) from error
