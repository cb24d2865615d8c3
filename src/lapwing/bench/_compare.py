"""Two programs that compute the same, compared: time, temporary memory, time to trace and compile, results.

The ratio of their times is the median over rounds in which they take turns, first one ahead and then the other: what
slows one of them in a round slows the other too. Rounds go on until the ratio is known well enough or the time is up.
Programs that compile to the same instructions have the ratio 1, without measuring.
"""

import contextlib
import dataclasses
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.measure import seconds_of

SAMPLE_SECONDS = 1e-3
FEWEST_ROUNDS = 9
# Less temporary memory than a page is as good as none.
PAGE = 4096
# Rounding alone: of `fast_weights`, `lax.scan` is 3e-5 from the gradient in float64, `lw.scan` 1e-5.
TOLERANCE = {"float32": 5e-5, "float64": 1e-11}


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled function."""

    call: Callable[..., Any]
    trace_s: float
    compile_s: float
    temporary_bytes: int
    instructions: str
    """Its text, with names that do not depend on how it came about."""


def compiled(fn: Callable[..., Any], arguments: Sequence[Any]) -> Program:
    """Traces and compiles a function."""
    begin = time.perf_counter()
    traced = jax.jit(fn).trace(*arguments)
    middle = time.perf_counter()
    call = traced.lower().compile()
    end = time.perf_counter()
    memory = call.memory_analysis()
    temporary = 0 if memory is None else memory.temp_size_in_bytes
    return Program(call, middle - begin, end - middle, temporary, _instructions(call.as_text() or ""))


# What says where a program comes from and not what it does: source lines, Lapwing's marks, parameters' names.
_NOISE = (
    (r", metadata=\{[^{}]*\}", ""),
    (r'lapwing(_loop)?="\w+",?', ""),
    (r", frontend_attributes=\{\}", ""),
    (r"(?<=[(,])( ?)[\w.-]+: ", r"\1"),
)


def _instructions(text: str) -> str:
    """A compiled program without source lines, its names numbered in the order of their appearance."""
    begin = re.search(r"^(%|ENTRY)", text, re.MULTILINE)
    text = text[begin.start() :] if begin else ""
    for noise, plain in _NOISE:
        text = re.sub(noise, plain, text)
    numbers: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), text)


def compare(
    plain: Program, other: Program, arguments: Sequence[Any], seconds: float, precision: float
) -> dict:
    """The ratio of the times of `plain` and `other` (above 1: `other` is faster) and all else, as plain data."""
    same = bool(plain.instructions) and plain.instructions == other.instructions
    timed = paired(
        plain.call, plain.call if same else other.call, arguments, 0 if same else seconds, precision
    )
    first, second = timed.pop("ms")
    if same:
        second, timed = first, {"ratio": 1.0, "uncertainty": 0.0, "rounds": timed["rounds"]}
    return {
        "ms": [first, second],
        **timed,
        "same_program": same,
        "temporary_bytes": [plain.temporary_bytes, other.temporary_bytes],
        "memory": max(other.temporary_bytes, PAGE) / max(plain.temporary_bytes, PAGE),
        "trace_s": [plain.trace_s, other.trace_s],
        "compile_s": [plain.compile_s, other.compile_s],
        **difference(plain.call(*arguments), other.call(*arguments)),
    }


def paired(
    first: Callable[..., Any],
    second: Callable[..., Any],
    arguments: Sequence[Any],
    seconds: float,
    precision: float,
) -> dict[str, Any]:
    """Medians of the milliseconds of both, of the ratio within a round, and the ratio's relative uncertainty (95%).

    A round calls each as often as a millisecond needs. There are at least nine, and more until `precision` is reached
    or `seconds` are over.
    """

    def call(function: Callable[..., Any], repeats: int) -> float:
        def repeated() -> None:
            for _ in range(repeats):
                jax.block_until_ready(function(*arguments))

        return seconds_of(repeated) / repeats

    both = (first, second)
    repeats = [math.ceil(SAMPLE_SECONDS / max(min(call(each, 1) for _ in range(3)), 1e-7)) for each in both]
    times: list[tuple[float, float]] = []
    begin = time.perf_counter()
    ratio, uncertainty = 1.0, math.inf
    # An even number of rounds, so that each was as often ahead as the other.
    while (
        len(times) < FEWEST_ROUNDS
        or len(times) % 2
        or (uncertainty > precision and time.perf_counter() - begin < seconds)
    ):
        order = (1, 0) if len(times) % 2 else (0, 1)
        taken = {i: call(both[i], repeats[i]) for i in order}
        times.append((taken[0], taken[1]))
        ratio, uncertainty = median_and_uncertainty([a / b for a, b in times])
    ms = [1e3 * statistics.median(each) for each in zip(*times, strict=True)]
    return {"ms": ms, "ratio": ratio, "uncertainty": uncertainty, "rounds": len(times)}


def median_and_uncertainty(values: Sequence[float]) -> tuple[float, float]:
    """The median, and half the width of its 95% interval relative to it, from the quartiles as in a notched box plot.

    >>> median_and_uncertainty([2.0, 2.0, 2.0, 2.0, 8.0])
    (2.0, 0.0)
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(middle), float(1.57 * (high - low) / math.sqrt(len(values)) / middle)


def difference(expected: Any, found: Any) -> dict[str, Any]:
    """The largest difference of two results relative to the largest value of its leaf, and whether it is rounding."""
    worst, agrees = 0.0, True
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        if not jnp.issubdtype(a.dtype, jnp.inexact):
            continue
        scale = float(jnp.max(jnp.abs(a), initial=0.0))
        error = float(jnp.max(jnp.abs(a - b), initial=0.0)) / (scale or 1.0)
        agrees = agrees and error <= TOLERANCE.get(jnp.finfo(a.dtype).dtype.name, 1e-2)
        worst = max(worst, error) if error == error else error
    return {"error": worst, "agrees": agrees}


@contextlib.contextmanager
def pinned(core: int) -> Iterator[int | None]:
    """Keeps the process on one core, the last it may use if `core` is -1. Before jax starts, it is its only core."""
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    before = os.sched_getaffinity(0)
    chosen = max(before) if core < 0 else core
    _set_affinity({chosen})
    try:
        yield chosen
    finally:
        _set_affinity(before)


def _set_affinity(cores: set[int]) -> None:
    """For all threads, since those that jax has started keep theirs."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)
