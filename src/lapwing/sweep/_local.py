"""The local engine: long-lived worker processes, jobs handed out one at a time.

XLA makes a pool of threads as large as the machine, in each process; two such processes on two cores wait for each
other more than they compute. So each worker is limited to its share of the cores, before it imports jax. Workers share
what they compile: points that differ in their seed alone are one program.

Workers are new processes, not forks: a process that has imported jax cannot be forked. They read their jobs from a
pipe, and the end of that pipe is their sign to stop, so none outlives the sweep.
"""

import collections
import contextlib
import glob
import importlib.metadata
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from lapwing.journal import from_json, to_json

from ._engine import Report, after_a_death
from ._job import Job, Outcome

_CUDA = ("jax-cuda12-plugin", "jax-cuda13-plugin")
# Of the memory of a GPU, what processes that share it take together.
_SHARED_MEMORY = 0.9


class LocalEngine:
    """So many worker processes; 0: one for each core, or for each GPU where jax uses them."""

    def __init__(self, folder: Path, workers: int = 0):
        self._logs = folder / "logs"
        self._gpus = _gpus()
        self._most = workers or len(self._gpus) or len(_cores())
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        # A place that stays the same, or each run would note at its resumption that it has changed.
        self._cache = os.path.abspath(folder / ".compiled")

    def __enter__(self) -> Self:
        self._logs.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for worker in self._workers:
                worker.let_go()
            for worker in self._workers:
                worker.process.wait()
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.close()
            self._selector.close()
            shutil.rmtree(self._cache, ignore_errors=True)

    def run(self, jobs: Sequence[Job]) -> Iterator[Report]:
        waiting = collections.deque(jobs)
        while waiting or any(worker.job for worker in self._workers):
            while waiting and (worker := self._free_worker()):
                job = waiting.popleft()
                worker.give(job)
                if not job.deaths:
                    yield Report(job)
            for key, _ in self._selector.select():
                worker, job = key.data, key.data.job
                outcomes = worker.answer()
                if outcomes is not None:
                    yield Report(job, outcomes)
                    continue
                death = self._bury(worker)
                if job is None:
                    continue
                if isinstance(next_ := after_a_death(job, death), Report):
                    yield next_
                else:
                    waiting.appendleft(next_)

    def _free_worker(self) -> "_Worker | None":
        for worker in self._workers:
            if worker.job is None:
                return worker
        if len(self._workers) == self._most:
            return None
        number = min(set(range(self._most)) - {worker.number for worker in self._workers})
        worker = _Worker(number, self._environment(number), self._logs / f"worker-{number}.txt")
        self._workers.append(worker)
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def _bury(self, worker: "_Worker") -> str:
        """How a worker that is no more has ended, in half a sentence."""
        self._selector.unregister(worker.answers)
        self._workers.remove(worker)
        worker.let_go()
        status = worker.close()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        return f"{how}; its last words are in {worker.log}"

    def _environment(self, number: int) -> dict[str, str]:
        """What a worker must know before it imports jax. What the user has set counts more."""
        wanted = {
            "JAX_COMPILATION_CACHE_DIR": self._cache,
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
    """A process, and the job that it has now."""

    def __init__(self, number: int, environment: dict[str, str], log: Path):
        self.number = number
        self.log = log
        self.job: Job | None = None
        with log.open("ab") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lapwing.sweep._worker"],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
                # Ctrl-C in a terminal is for the sweep, which tells its workers.
                start_new_session=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self._jobs, self.answers = self.process.stdin, self.process.stdout

    def give(self, job: Job) -> None:
        self.job = job
        with contextlib.suppress(
            BrokenPipeError
        ):  # If it has died meanwhile, the end of its answers will tell.
            self._jobs.write(to_json(job.to_json()) + "\n")
            self._jobs.flush()

    def answer(self) -> list[Outcome] | None:
        """What became of its job; None if the process has ended."""
        line = self.answers.readline()
        if not line.endswith("\n"):
            return None
        self.job = None
        return [Outcome(*told) for told in from_json(line)]

    def let_go(self) -> None:
        """It stops what it does, with a checkpoint, and ends."""
        with contextlib.suppress(BrokenPipeError):
            self._jobs.close()

    def close(self) -> int:
        """Its exit status, once it has ended."""
        self.answers.close()
        return self.process.wait()


def _cores() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):  # Not on macOS.
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _gpus() -> list[str]:
    """The GPUs that jax will use, found without asking it, which would take their memory."""
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
