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


class SummaryError(LapwingError, ValueError):
    """Data that is not a summary of laps."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """One phase over the steady steps. Times are in seconds, None if nothing was measured."""

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
        try:
            return _read(data)
        except (KeyError, TypeError) as error:
            raise SummaryError(f"the summary of laps is damaged: {type(error).__name__} {error}") from error

    def __str__(self) -> str:
        return text_table(self)


def _read(data: Mapping[str, Any]) -> LapSummary:
    series = data["series"]
    return LapSummary(
        step=PhaseTimes(**data["step"]),
        phases=tuple(PhaseTimes(**phase) for phase in data["phases"]),
        unaccounted=PhaseTimes(**data["unaccounted"]),
        apart=data["apart"],
        apart_seconds=data["apart_seconds"],
        misnested=data["misnested"],
        series=StepSeries(
            stride=series["stride"],
            steps=series["steps"],
            parts=tuple(series["parts"]),
            seconds=tuple(tuple(bar) for bar in series["seconds"]),
        ),
    )


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
