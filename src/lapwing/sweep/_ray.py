"""The engine on a Ray cluster: each job is a task on one core, or one GPU.

All machines must see the runs folder under the same path. A task that is preempted, or whose worker or machine dies, is
submitted again, and continues elsewhere from the checkpoint in that folder. Ray's own retries are off: it would not say
that it retried.
"""

import contextlib
import logging
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from ._axes import SweepError
from ._engine import Report, repeated, report_or_repeat, retry_or_fail
from ._job import Job, run_job

# A task has one core, as a worker of the local engine.
_LIMITS = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_STOP_TIMEOUT_S = 600.0
_CONNECT_TIMEOUT_S = 10.0


class RayEngine:
    """The Ray cluster at an address; by default a cluster of this machine alone, for the duration of the sweep.

    >>> from lapwing.sweep import run_sweep
    >>> run_sweep(sweep, "runs/widths", engine=RayEngine("auto"))  # doctest: +SKIP
    """

    def __init__(self, address: str | None = None):
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
            # Ray reports dead machines on standard output, which is for results.
            opened.enter_context(contextlib.redirect_stdout(sys.stderr))
            self._connect()
            opened.callback(self._ray.shutdown)
            self._open = opened.pop_all()
        gpus = 1 if self._ray.cluster_resources().get("GPU") else 0
        self._run_job = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(run_job)
        return self

    def _connect(self) -> None:
        try:
            _check_reachable(self._address)
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
        """A cancelled task is interrupted as by Ctrl-C."""
        with self._open:
            for task in self._waiting:
                self._ray.cancel(task)
            if self._waiting:
                self._ray.wait(list(self._waiting), num_returns=len(self._waiting), timeout=_STOP_TIMEOUT_S)

    def run(self, jobs: Iterable[Job]) -> Iterator[Report]:
        new = iter(jobs)
        while True:
            # A list is submitted at once, so that a cluster that grows on demand sees all of it.
            while isinstance(jobs, Sequence) or len(self._waiting) < self._slots():
                if (job := next(new, None)) is None:
                    break
                self._submit(job)
            if not self._waiting:
                return
            (task, *_), _ = self._ray.wait(list(self._waiting))
            job = self._waiting.pop(task)
            try:
                next_ = report_or_repeat(job, self._ray.get(task))
            except (
                self._ray.exceptions.NodeDiedError
            ):  # A machine that was taken back says nothing of its job.
                next_ = repeated(job)
            except self._ray.exceptions.RayError as error:
                next_ = retry_or_fail(job, self._death_in_words(error))
            if isinstance(next_, Report):
                yield next_
            else:
                self._submit(next_)

    def _death_in_words(self, error: Exception) -> str:
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            return f"by Ray, since its machine was out of memory: {' '.join(str(error).split())[:200]}"
        return f"by {type(error).__name__}"

    def _slots(self) -> int:
        """The number of jobs that can run at once: the cluster's GPUs, or its cores."""
        there = self._ray.cluster_resources()
        return max(1, int(there.get("GPU") or there.get("CPU") or 1))

    def _submit(self, job: Job) -> None:
        self._waiting[self._run_job.remote(job)] = job


def _check_reachable(address: str | None) -> None:
    """Fails fast where Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
