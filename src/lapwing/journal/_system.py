"""What a run uses of its machine: CPU, memory and GPUs, sampled by a thread of the process that writes the run.

A sample is one line of system.jsonl. The first is taken after a second and the others every ten, each in some 0.1 ms.
When there are a thousand, every second one is dropped and the next ones are twice as far apart: a file of bounded size
covers a run of any length. A run of less than a second has none. Sampling never disturbs a run: what a system does not
count is left out, and a thread that cannot write ends.

    time                  seconds since 1970
    cpu_percent           of this process, 100 for one core, mean since the sample before
    memory_bytes          of this process that are in memory (where the system does not say, its peak)
    machine_cpu_percent   of all cores and all processes
    machine_memory_bytes  that are not available any more, of all processes
    gpu0_percent          the share of the last second in which the GPU was busy
    gpu0_memory_bytes     in use by this process if JAX counts them, else by all processes
"""

import contextlib
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lapwing.core import format_bytes, replace_file

from ._append import LineWriter
from ._gpu import Gpus, jax_memory
from ._json import encode
from ._tail import Columns, Tail

if TYPE_CHECKING:
    import numpy as np

FILE = "system.jsonl"
FIRST_S, EVERY_S = 1.0, 10.0
MOST_SAMPLES = 1000
_JOIN_S = 1.0


class Sampler:
    """A thread that samples from its creation to `stop`.

    **Arguments:** `counts_jax` says that JAX's backend is running, so that asking it does not start it.
    """

    def __init__(
        self,
        folder: Path,
        counts_jax: bool = False,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
        most: int = MOST_SAMPLES,
    ):
        self._path = folder / FILE
        self._counts_jax = counts_jax
        self._first_s, self._every_s, self._most = first_s, every_s, most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="lapwing-system", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample and ends the thread."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _follow(self) -> None:
        meter = Meter(self._counts_jax)
        if self._over.wait(self._first_s):
            return
        with contextlib.suppress(OSError):  # A full disk, or a folder that is gone.
            while True:
                self._write(meter.sample())
                if self._over.wait(self._every_s):
                    self._write(meter.sample())
                    return

    def _write(self, sample: Mapping[str, float]) -> None:
        file = LineWriter(self._path)
        try:
            file.write([encode(sample)])
        finally:
            file.close()
        lines = self._path.read_bytes().splitlines(keepends=True)
        if len(lines) >= self._most:
            replace_file(self._path, b"".join(lines[::2]))
            self._every_s *= 2


class Meter:
    """Takes samples; the CPU is counted since the sample before.

    >>> sample = Meter().sample()
    >>> sample["memory_bytes"] > 1e6, sample["cpu_percent"] >= 0
    (True, True)
    """

    def __init__(self, counts_jax: bool = False):
        self._counts_jax = counts_jax
        self._gpus = Gpus()
        self._cpu, self._clock, self._machine = _cpu_seconds(), time.monotonic(), _machine_ticks()

    def sample(self) -> dict[str, float]:
        found = {"time": round(time.time(), 3), "cpu_percent": self._cpu_percent(), "memory_bytes": _memory()}
        busy, every = _machine_ticks()
        if every > self._machine[1]:
            share = (busy - self._machine[0]) / (every - self._machine[1])
            found["machine_cpu_percent"] = round(100 * share, 1)
        self._machine = busy, every
        if (used := _machine_memory()) is not None:
            found["machine_memory_bytes"] = used
        found |= self._gpus.sample()
        if self._counts_jax:
            with contextlib.suppress(Exception):  # Whatever a device answers while its process ends.
                found |= jax_memory()
        return found

    def _cpu_percent(self) -> float:
        cpu, clock = _cpu_seconds(), time.monotonic()
        share = (cpu - self._cpu) / max(clock - self._clock, 1e-9)
        self._cpu, self._clock = cpu, clock
        return round(100 * share, 1)


def read_system(folder: Path) -> "dict[str, np.ndarray]":
    """The samples of a run folder as columns, among them `time`; see `Run.system`."""
    import numpy as np

    # Read whole, since the file is replaced from time to time; it is small.
    columns = Columns(Tail(folder / FILE)).update()
    return {name: np.array(column) for name, column in columns.items()} if "time" in columns else {}


def describe_system(columns: "Mapping[str, np.ndarray]") -> list[tuple[str, str]]:
    """Names and words for a person: the mean use and the largest memory.

    >>> import numpy as np
    >>> describe_system({"cpu_percent": np.array([100.0, 300.0]), "memory_bytes": np.array([2e9, 1e9])})
    [('CPU', '200% of one core, at most 300%'), ('memory', '1 GB, at most 2 GB')]
    """
    import numpy as np

    there = {name: column[~np.isnan(column)] for name, column in columns.items()}
    there = {name: column for name, column in there.items() if len(column)}

    def use(name: str, of: str = "") -> list[str]:
        column = there.get(name)
        return [] if column is None else [f"{column.mean():.0f}%{of}, at most {column.max():.0f}%"]

    def memory(name: str) -> list[str]:
        column = there.get(name)
        return [] if column is None else [f"{format_bytes(column[-1])}, at most {format_bytes(column.max())}"]

    gpus = sorted({int(match[1]) for name in there if (match := re.match(r"gpu(\d+)_", name))})
    rows = [
        ("CPU", use("cpu_percent", " of one core")),
        ("memory", memory("memory_bytes")),
        *((f"GPU {gpu}", [*use(f"gpu{gpu}_percent"), *memory(f"gpu{gpu}_memory_bytes")]) for gpu in gpus),
    ]
    return [(name, "; ".join(words)) for name, words in rows if words]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _memory() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # macOS, where the peak is in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def _machine_ticks() -> tuple[int, int]:
    """Busy time and all time of all cores; zero where the system does not say."""
    try:
        with open("/proc/stat", "rb") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    user, nice, system, idle, iowait, *interrupts_and_stolen = ticks
    busy = user + nice + system + sum(interrupts_and_stolen)
    return busy, busy + idle + iowait


def _machine_memory() -> int | None:
    """The bytes that are not available."""
    try:
        with open("/proc/meminfo", "rb") as file:
            words = {line.split()[0]: int(line.split()[1]) for line in file if line.startswith(b"Mem")}
        return 1024 * (words[b"MemTotal:"] - words[b"MemAvailable:"])
    except (OSError, ValueError, KeyError):
        return None
