"""Misleading times: phases that do not add up, a first call in the average, a clock that does not wait."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from lapwing.core import format_seconds
from lapwing.timing import Laps, LapSummary

from ._report import CheckInputError, Report, fail

_UNACCOUNTED = 0.10
_OVERLAP = 0.02
_FIRST = 3.0
_CALLS = 5


def honest_timing(
    timed: Laps | LapSummary | Mapping[str, Any] | Callable[..., Any],
    *args: Any,
    whole: str = "step",
    claimed_s: float | None = None,
) -> Report:
    """Times must add up, wait for the device, and exclude the first call.

    **Arguments**

    - `timed`: a `Laps`, its summary, the content of a laps.json, or a dict of seconds: a list for each phase and for
      the `whole` step. Or a function, which is called with `args`.
    - `claimed_s`: the time somebody measured for the function; it must agree with the time until its result is ready.

    >>> print(honest_timing({"step": [0.10, 0.11, 0.10], "attack": [0.09, 0.10, 0.09], "update": [0.01, 0.01, 0.01]}))
    honest_timing: 2 phases add up to 100% of 3 steps
    >>> honest_timing({"step": [20.0, 1.0, 1.0], "update": [19.9, 0.95, 0.95]})
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the first step took 20.0 s and the others 1.00 s: the first call is included.
    Look at ...
    """
    if isinstance(timed, Laps):
        return _of_summary(timed.summary())
    if isinstance(timed, LapSummary):
        return _of_summary(timed)
    if isinstance(timed, Mapping):
        return _of_summary(LapSummary.from_json(timed)) if "format" in timed else _of_lists(timed, whole)
    if callable(timed):
        return _of_calls(timed, args, claimed_s)
    raise CheckInputError(
        f"expected Laps, a summary of laps, a dict of seconds by phase or a function, found a {type(timed).__name__}"
    )


def _of_summary(summary: LapSummary) -> Report:
    if summary.step.count == 0:
        raise CheckInputError("no step after the first was timed; time some more")
    if summary.misnested:
        fail(
            "honest_timing",
            f"{summary.misnested} phases were closed because one around them ended first",
            "generators and exceptions that leave phases in another order than they entered them",
        )
    tops = [phase for phase in summary.phases if phase.depth == 0]
    _check_sum({phase.path: phase.total for phase in tops}, summary.step.total)
    return _adds_up(len(tops), summary.step.count, sum(phase.total for phase in tops) / summary.step.total)


def _of_lists(times: Mapping[str, Any], whole: str) -> Report:
    if whole not in times:
        raise CheckInputError(
            f"expected the times of the whole step under {whole!r}, found {', '.join(times)}; name it"
        )
    phases = {name: list(map(float, seconds)) for name, seconds in times.items()}
    if len({len(seconds) for seconds in phases.values()}) != 1 or not phases[whole]:
        counts = {name: len(seconds) for name, seconds in phases.items()}
        raise CheckInputError(f"expected as many times of every phase as of {whole!r}, found {counts}")
    for name, seconds in phases.items():
        _check_first(name, seconds, statistics.median(phases[whole]))
    totals = {name: sum(seconds) for name, seconds in phases.items() if name != whole}
    _check_sum(totals, sum(phases[whole]))
    return _adds_up(len(totals), len(phases[whole]), sum(totals.values()) / sum(phases[whole]))


def _check_first(name: str, seconds: Sequence[float], typical_step: float) -> None:
    if len(seconds) < 3:
        return
    first, others = seconds[0], statistics.median(seconds[1:])
    # A phase that is short compared with the step may vary.
    if first > _FIRST * others and first - others > 0.1 * typical_step:
        fail(
            "honest_timing",
            f"the first {name} took {format_seconds(first)} and the others {format_seconds(others)}: "
            "the first call is included",
            "compilation, caches and allocations of the first call; time it separately, and average from the second on",
            [name],
        )


def _check_sum(phases: Mapping[str, float], whole: float) -> None:
    if not phases or not whole:
        return
    share = sum(phases.values()) / whole
    if share < 1 - _UNACCOUNTED:
        largest = max(phases, key=lambda name: phases[name])
        fail(
            "honest_timing",
            f"the phases add up to {share:.0%} of the step, so {1 - share:.0%} of the time is not accounted for (the "
            f"largest phase, {largest}, has {phases[largest] / whole:.0%})",
            "what happens between the phases, and whether each phase waits for the device (jax.block_until_ready): "
            "the first one that waits includes the time of all before it",
        )
    if share > 1 + _OVERLAP:
        fail(
            "honest_timing",
            f"the phases add up to {share:.0%} of the step, more than all of it",
            "phases that overlap, nested phases that count twice, and clocks that differ",
        )


def _of_calls(function: Callable[..., Any], args: tuple[Any, ...], claimed: float | None) -> Report:
    first = _return_and_ready(function, args)[1]
    laps = [_return_and_ready(function, args) for _ in range(_CALLS)]
    returned, ready = (statistics.median(each) for each in zip(*laps, strict=True))
    message = f"the call returns after {format_seconds(returned)}, its result is ready after {format_seconds(ready)}"
    if claimed is not None and claimed < 0.5 * ready:
        fail(
            "honest_timing",
            f"{format_seconds(claimed)} was claimed, but {message}: the clock stopped before the device was done",
            "the end of the timed code: wait for the result there with jax.block_until_ready",
        )
    if claimed is not None and claimed > _FIRST * ready and claimed > 0.5 * first / _CALLS:
        fail(
            "honest_timing",
            f"{format_seconds(claimed)} was claimed, but {message}; the first call took {format_seconds(first)}",
            "a first call, which traces and compiles, among the timed ones",
        )
    return Report("honest_timing", message, {"returned_s": returned, "ready_s": ready, "first_s": first})


def _return_and_ready(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, float]:
    started = time.perf_counter()
    result = function(*args)
    returned = time.perf_counter()
    jax.block_until_ready(result)
    return returned - started, time.perf_counter() - started


def _adds_up(phases: int, steps: int, share: float) -> Report:
    return Report(
        "honest_timing",
        f"{phases} phases add up to {share:.0%} of {steps} steps",
        {"share": share, "steps": steps},
    )
