"""Which points share a job: each has its own, or those that one compiled step can train as a population share one."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lapwing.journal import flat, to_json

from ._job import Job
from ._points import Point


def jobs_of(
    experiment: str,
    folder: Path,
    points: Sequence[Point],
    vectorize: bool,
    source: Mapping[str, str] | None = None,
) -> list[Job]:
    """A job for each point; with `vectorize`, one for all points that a population can train together."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(_shape(point) if vectorize else point.name, []).append(point)
    path = os.path.abspath(folder)  # A worker may have another working directory.
    return [
        Job(experiment, path, {point.name: point.settings for point in group}, source=source)
        for group in groups.values()
    ]


def _shape(point: Point) -> str:
    from lapwing.train import VECTORIZED

    return to_json({path: value for path, value in flat(point.settings) if path not in VECTORIZED})
