"""The local engine: long-lived worker processes, each with one job at a time.

XLA creates a thread pool as large as the machine in each process; two such processes on two cores mostly wait for each
other. So each worker is limited to its share of the cores, before it imports jax. Workers share a compilation cache:
points that differ only in their seed are one program.

Workers are new processes, not forks: a process that has imported jax cannot be forked. They read their jobs from a
pipe, and stop when it ends, so none outlives the sweep.
"""

import collections
import contextlib
import glob
import importlib.metadata
import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from lapwing.core import Preempted
from lapwing.journal import from_json, to_json

from ._axes import SweepError
from ._engine import Report, report_or_repeat, retry_or_fail
from ._job import STOP, Job, Outcome
from ._memory import count_kills, death_in_words

_CUDA = ("jax-cuda12-plugin", "jax-cuda13-plugin")
# The fraction of a GPU's memory that the processes sharing it use together.
_SHARED_MEMORY = 0.9


class LocalEngine:
    """Worker processes on this machine: by default one for each core, or for each GPU where jax uses them.

    >>> with LocalEngine(workers=2) as engine:
    ...     list(engine.run([]))
    []
    """

    def __init__(self, workers: int | None = None):
        if workers is not None and workers < 1:
            raise SweepError(
                f"a sweep needs at least 1 worker, not {workers}; leave it out for one on each core, or GPU"
            )
        self._gpus = _gpus()
        self._most = workers or len(self._gpus) or len(_cores())
        self._workers: list[_Worker] = []
        self._caches: set[Path] = set()

    def __enter__(self) -> Self:
        self._selector = selectors.DefaultSelector()
        return self

    def __exit__(self, *raised: object) -> None:
        is_preempted = any(isinstance(each, Preempted) for each in raised)
        try:
            for worker in self._workers:
                worker.stop(is_preempted)
            for worker in self._workers:
                worker.process.wait()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.close()
            self._workers.clear()
            self._selector.close()
            for cache in self._caches:
                shutil.rmtree(cache, ignore_errors=True)

    def run(self, jobs: Iterable[Job]) -> Iterator[Report]:
        again: collections.deque[Job] = collections.deque()
        new = iter(jobs)
        while True:
            while self._has_room() and (job := again.popleft() if again else next(new, None)):
                self._free_worker(Path(job.folder)).start(job)
                if not job.attempts:
                    yield Report(job)
            if not any(worker.job for worker in self._workers):
                return
            for key, _ in self._selector.select():
                worker, job = key.data, key.data.job
                outcomes = worker.answer()
                if outcomes is not None:
                    next_ = report_or_repeat(job, outcomes)
                else:
                    cause = self._remove(worker)
                    if job is None:
                        continue
                    next_ = retry_or_fail(job, cause)
                if isinstance(next_, Report):
                    yield next_
                else:
                    again.append(next_)

    def _has_room(self) -> bool:
        return len(self._workers) < self._most or any(worker.job is None for worker in self._workers)

    def _free_worker(self, folder: Path) -> "_Worker":
        for worker in self._workers:
            if worker.job is None:
                return worker
        number = min(set(range(self._most)) - {worker.number for worker in self._workers})
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        worker = _Worker(number, self._environment(number, folder), logs / f"worker-{number}.txt")
        self._workers.append(worker)
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def _remove(self, worker: "_Worker") -> str:
        """Removes a worker that has died, and says how it did."""
        self._selector.unregister(worker.answers)
        self._workers.remove(worker)
        worker.stop()
        return f"{worker.close()}; its output is in {worker.log}"

    def _environment(self, number: int, folder: Path) -> dict[str, str]:
        """Variables that must be set before jax is imported. Those that the user has set take precedence."""
        # The same path every time, or each run would note at its resumption that it has changed.
        cache = folder.absolute() / ".compiled"
        self._caches.add(cache)
        wanted = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        if self._gpus:
            share = -(-self._most // len(self._gpus))
            wanted["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_SHARED_MEMORY / share:.3f}"
            return {**wanted, **os.environ, "CUDA_VISIBLE_DEVICES": self._gpus[number % len(self._gpus)]}
        threads = str(max(1, len(_cores()) // self._most))
        wanted |= dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        return {**wanted, **os.environ}


class _Worker:
    """A process, and its current job."""

    def __init__(self, number: int, environment: dict[str, str], log: Path):
        self.number = number
        self.log = log
        self.job: Job | None = None
        self._kills_before = count_kills()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lapwing.sweep._worker"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                # Ctrl-C in a terminal is for the sweep, which stops its workers.
                start_new_session=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self._jobs, self.answers = self.process.stdin, self.process.stdout

    def start(self, job: Job) -> None:
        self.job = job
        # If it has died, its answers end, which `run` notices.
        with contextlib.suppress(BrokenPipeError):
            self._jobs.write(to_json(job) + "\n")
            self._jobs.flush()

    def answer(self) -> list[Outcome] | None:
        """The outcomes of its job; None if the process has ended."""
        line = self.answers.readline()
        if not line.endswith("\n"):
            return None
        self.job = None
        return [Outcome(*fields) for fields in from_json(line)]

    def stop(self, is_preempted: bool = False) -> None:
        """Makes it stop its training with a checkpoint, and end."""
        with contextlib.suppress(BrokenPipeError):
            if not is_preempted:
                self._jobs.write(STOP)
            self._jobs.close()

    def close(self) -> str:
        """Waits for its end and says how it died."""
        self.answers.close()
        peak = 0
        if self.process.returncode is None:
            _, status, usage = os.wait4(
                self.process.pid, 0
            )  # Popen waits too, but does not say what was used.
            self.process.returncode = os.waitstatus_to_exitcode(status)
            peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return death_in_words(self.process.returncode, peak, count_kills() - self._kills_before)


def _cores() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):  # Not on macOS.
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _gpus() -> list[str]:
    """The GPUs that jax will use, found without importing it, which would take their memory."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu") or not any(map(_is_installed, _CUDA)):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [each for each in chosen.split(",") if each]
    return [str(number) for number in range(len(glob.glob("/dev/nvidia[0-9]*")))]


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
