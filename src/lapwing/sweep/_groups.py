"""Which points are trained together: each by itself, or those that one compiled step can train as a population."""

import os
from collections.abc import Sequence
from pathlib import Path

from lapwing.journal import flat, to_json

from ._job import Job
from ._points import Point


def jobs_of(experiment: str, folder: Path, points: Sequence[Point], vectorize: bool) -> list[Job]:
    """A job for each point; with `vectorize`, for all that differ only in what a population may differ in."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(_shape(point) if vectorize else point.name, []).append(point)
    # A worker may be anywhere.
    return [Job(experiment, os.path.abspath(folder), tuple(group)) for group in groups.values()]


def _shape(point: Point) -> str:
    from lapwing.train import VECTORIZED

    return to_json({path: value for path, value in flat(point.settings) if path not in VECTORIZED})
