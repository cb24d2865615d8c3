"""The engine on a Ray cluster: each job is a task, which Ray hands to whoever has a core free, or a GPU.

The runs folder has to be seen by all machines under one path. A task whose worker or machine dies is given to Ray once
more, and goes on elsewhere from the checkpoint in that folder. Ray could do that by itself, but would not say that it
did, and the run of a machine that may be alive is not taken over.
"""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

from ._axes import SweepError
from ._engine import Report, after_a_death
from ._job import Job, train

# A task has one core, as a worker of the local engine.
_LIMITS = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_PATIENCE_S = 600.0
_PATIENCE_AT_THE_DOOR_S = 10.0


class RayEngine:
    """The cluster at an address; without one, a cluster of this machine alone, for as long as the sweep takes."""

    def __init__(self, address: str | None):
        try:
            import ray
        except ImportError:
            raise SweepError(
                "the engine ray needs Ray, which is not installed; write pip install 'lapwing[ray]', or --engine local"
            ) from None
        self._ray: Any = ray
        self._address = address
        self._waiting: dict[Any, Job] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            # Ray tells of dead machines on standard output, which is for results.
            opened.enter_context(contextlib.redirect_stdout(sys.stderr))
            self._connect()
            opened.callback(self._ray.shutdown)
            self._open = opened.pop_all()
        gpus = 1 if self._ray.cluster_resources().get("GPU") else 0
        self._train = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(train)
        return self

    def _connect(self) -> None:
        try:
            _knock(self._address)
            self._ray.init(
                address=self._address or "local",
                runtime_env={"env_vars": _LIMITS},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (OSError, ValueError, RuntimeError) as error:
            why = " ".join(str(error).split())[:200]
            raise SweepError(f"there is no Ray cluster at {self._address!r}: {why}") from None

    def __exit__(self, *_: object) -> None:
        """To a task that is cancelled, it is as if Ctrl-C was pressed."""
        with self._open:
            for task in self._waiting:
                self._ray.cancel(task)
            if self._waiting:
                self._ray.wait(list(self._waiting), num_returns=len(self._waiting), timeout=_PATIENCE_S)

    def run(self, jobs: Sequence[Job]) -> Iterator[Report]:
        for job in jobs:
            self._submit(job)
        while self._waiting:
            (task, *_), _ = self._ray.wait(list(self._waiting))
            job = self._waiting.pop(task)
            try:
                yield Report(job, self._ray.get(task))
            except self._ray.exceptions.RayError as error:
                if isinstance(next_ := after_a_death(job, f"by {type(error).__name__}"), Report):
                    yield next_
                else:
                    self._submit(next_)

    def _submit(self, job: Job) -> None:
        self._waiting[self._train.remote(job.to_json())] = job


def _knock(address: str | None) -> None:
    """Sees whether anybody is there, for which Ray itself waits minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_PATIENCE_AT_THE_DOOR_S).close()
