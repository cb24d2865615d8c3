"""A run of several processes, each with some of the devices; the first one has the run folder.

All processes make the same steps and decide the same after each, from metrics that all of them have. What only one can
know (a command, the time, what a checkpoint holds) the first one broadcasts to the others. An interrupt may reach any
of them, and ends all.
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

_LOST_AFTER_S = 30  # A process without a heartbeat for this long is taken for dead.
_REASONS = (None, "Ctrl-C", "SIGTERM")
_LEAST_BYTES = 256  # Messages are padded to a power of two, so that few lengths are compiled.


class LostProcessError(LapwingError, RuntimeError):
    """Another process of the run has ended, so nothing more can be computed."""

    def __init__(self, reason: str):
        super().__init__(
            f"another process of this run has ended, or cannot be reached ({reason}); "
            "start all of them again with `lapwing resume`: they continue from the newest checkpoint"
        )


def join_processes(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Joins the processes of a run, before anything else is done with jax.

    **Arguments:** `coordinator` is the host and a free port of the first process, the same for all; "auto" takes it,
    and the other two, from the scheduler (SLURM, Open MPI, Kubernetes: see `jax.distributed.initialize`).

    >>> join_processes("10.0.0.1:9876", processes=2, process_id=0)  # doctest: +SKIP
    """
    # It would take SIGTERM away from everybody else, and only note it.
    jax.config.update("jax_enable_preemption_service", False)
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
            "free port of the first process, or auto under a scheduler"
        ) from error


def is_first() -> bool:
    """Whether this process has the run folder.

    >>> is_first()   # of one process, the only one
    True
    """
    return jax.process_index() == 0


def are_several() -> bool:
    return jax.process_count() > 1


def broadcast_from_first(value: Any) -> Any:
    """The value of the first process in all processes: anything that JSON can hold.

    >>> broadcast_from_first({"learning_rate": 0.1})
    {'learning_rate': 0.1}
    """
    if not are_several():
        return value
    message = np.frombuffer(to_json(value).encode(), np.uint8)
    size = int(_from_first(np.int64(len(message))))
    padded = max(_LEAST_BYTES, 1 << size.bit_length())
    text = _from_first(np.resize(np.append(message, np.zeros(padded, np.uint8)), padded))
    return value if is_first() else from_json(bytes(np.asarray(text, np.uint8)[:size]).decode())


def agree_on_end(
    interrupt: str | None, seconds: float, failure: str | None
) -> tuple[str | None, float, str | None]:
    """What may end a run, the same in all processes: an interrupt of any of them, the time and failure of the first.

    >>> agree_on_end("SIGTERM", 1.5, None)
    ('SIGTERM', 1.5, None)
    """
    if not are_several():
        return interrupt, seconds, failure
    # One exchange of numbers takes half the time of a broadcast, which sends a length first.
    mine = np.array([_REASONS.index(interrupt), seconds, failure is not None], np.float32)
    reasons, times, failures = multihost_utils.process_allgather(mine).T
    where = int(np.argmax(reasons > 0))
    reason = _REASONS[int(reasons[where])]
    said = f"{reason}, sent to process {where}" if reason and where else reason
    return said, float(times[0]), broadcast_from_first(failure) if failures[0] else None


def shared(tree: Any) -> Any:
    """The arrays of the first process in all processes; the others give a tree of the same shapes."""
    return _from_first(tree) if are_several() else tree


def _from_first(tree: Any) -> Any:
    return multihost_utils.broadcast_one_to_all(jax.device_get(tree))


@contextlib.contextmanager
def explain_lost_peer() -> Iterator[None]:
    """Turns the runtime's error about a lost process into a `LostProcessError`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        # These errors begin with a code such as UNKNOWN; they are a ValueError or a JaxRuntimeError.
        if not are_several() or not re.match("[A-Z_]+: ", str(error)):
            raise
        raise LostProcessError(str(error).splitlines()[0]) from error
