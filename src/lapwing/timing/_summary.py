"""The measurements of a `Laps` as frozen data: for a table, for JSON, for a picture.

All statistics are over *steady* steps, so the parts sum to the whole: the phases of depth 0 and `unaccounted` add up to
`step`. The times before the steady state (trace, lower, compile and the first call) are separate fields.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lapwing.core import LapwingError

from ._phase import STAGES, Phase
from ._series import StepSeries
from ._table import text_table

FORMAT = "lapwing laps 1"
_MOST = 10**11
"""More seconds than any run takes, and more calls."""
_LONGEST_PATH = 1000


class SummaryError(LapwingError, ValueError):
    """Data that is not a summary of laps."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """One phase over the steady steps. Times are in seconds, None if nothing was measured.

    >>> import itertools
    >>> from lapwing.timing import Laps
    >>> laps = Laps(clock=itertools.count().__next__)   # a clock that advances one second per call
    >>> for _ in range(3):
    ...     with laps("forward"), laps("attention"):
    ...         pass
    ...     laps.step()
    >>> [(times.path, times.depth, times.total, times.own) for times in laps.summary().phases]
    [('forward', 0, 6.0, 4.0), ('forward/attention', 1, 2.0, 2.0)]
    """

    path: str
    count: int
    total: float
    own: float  # total without the phases nested in this one
    share: float | None  # of the time of all steady steps
    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None
    cpu: float | None  # total processor time; None unless Laps(cpu=True)
    trace: float | None
    lower: float | None
    compile: float | None
    first: float | None

    @property
    def depth(self) -> int:
        return self.path.count("/")


@dataclass(frozen=True, slots=True)
class LapSummary:
    """The steps of a run, their phases (a parent before its children) and the time outside all phases.

    `apart` steps are in no statistic, because something in them ran for the first time or was compiled; they took
    `apart_seconds`. `misnested` counts the phases that were closed because an outer one ended first.
    """

    step: PhaseTimes
    phases: tuple[PhaseTimes, ...]
    unaccounted: PhaseTimes
    apart: int
    apart_seconds: float
    misnested: int
    series: StepSeries

    def to_json(self) -> dict[str, Any]:
        """A plain dict for `json.dumps`, which `LapSummary.from_json` reads back."""
        return {"format": FORMAT, "unit": "seconds", **_plain(dataclasses.asdict(self))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LapSummary":
        """The summary that `to_json` wrote.

        >>> from lapwing.timing import Laps
        >>> summary = Laps().summary()
        >>> LapSummary.from_json(summary.to_json()) == summary
        True
        """
        found = data.get("format") if isinstance(data, Mapping) else None
        if found != FORMAT:
            raise SummaryError(
                f"expected the dict of LapSummary.to_json() with format {FORMAT!r}, "
                f"found format {found!r}; give the content of a laps.json file"
            )
        return _read(data)

    def __str__(self) -> str:
        return text_table(self)


def _read(data: Mapping[str, Any]) -> LapSummary:
    """The summary, after every type in it was checked: it may come from any file."""
    series, phases = _get(data, "series", dict), _get(data, "phases", list)
    parts, seconds = _get(series, "parts", list), _get(series, "seconds", list)
    if not all(isinstance(bar, list) and len(bar) == len(parts) for bar in seconds):
        raise _damaged("series.seconds", seconds)
    step, unaccounted = (_phase(_get(data, name, dict)) for name in ("step", "unaccounted"))
    summary = LapSummary(
        step=step,
        phases=tuple(_phase(phase) for phase in phases),
        unaccounted=unaccounted,
        apart=_get(data, "apart", int),
        apart_seconds=_number("apart_seconds", data.get("apart_seconds")),
        misnested=_get(data, "misnested", int),
        series=StepSeries(
            stride=_get(series, "stride", int),
            steps=_get(series, "steps", int),
            parts=tuple(_text("parts", part) for part in parts),
            seconds=tuple(tuple(_number("series.seconds", each) for each in bar) for bar in seconds),
        ),
    )
    tops = [phase.path for phase in summary.phases if not phase.depth and phase.count]
    if seconds and (summary.series.stride < 1 or not {*tops, unaccounted.path} <= {*parts}):
        raise _damaged("series.parts", parts)
    return summary


def _phase(data: Any) -> PhaseTimes:
    if not isinstance(data, dict):
        raise _damaged("phases", data)
    times = {
        each.name: _number(each.name, data.get(each.name), missing="None" in str(each.type))
        for each in dataclasses.fields(PhaseTimes)[2:]
    }
    return PhaseTimes(_text("path", data.get("path")), _get(data, "count", int), **times)


def _get(data: Mapping[str, Any], name: str, kind: type) -> Any:
    value: Any = data.get(name)
    if type(value) is not kind or (kind is int and not 0 <= value <= _MOST):
        raise _damaged(name, value)
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_PATH:
        raise _damaged(name, value)
    return value


def _number(name: str, value: Any, missing: bool = False) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if (is_number and abs(value) <= _MOST) or (value is None and missing):
        return value
    raise _damaged(name, value)


def _damaged(name: str, value: Any) -> SummaryError:
    return SummaryError(f"the summary of laps is damaged: {name} is {value!r:.80}")


def phase_times(phase: Phase, whole: float, with_cpu: bool) -> PhaseTimes:
    """The statistics of `phase`; all steady steps together took `whole` seconds."""
    steady = phase.steady
    return PhaseTimes(
        path=phase.path,
        count=steady.count,
        total=steady.total,
        own=steady.total - sum(child.steady.total for child in phase.children.values()),
        share=steady.total / whole if whole else None,
        mean=steady.total / steady.count if steady.count else None,
        p50=steady.quantile(0.5),
        p95=steady.quantile(0.95),
        max=steady.max if steady.count else None,
        cpu=steady.cpu if with_cpu else None,
        first=phase.first,
        **{stage: phase.stages.get(stage) for stage in STAGES},
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
