"""Who runs the jobs of a sweep: what the local engine and the one on Ray have in common."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, Self

from ._job import Job, Outcome

Name = Literal["local", "ray"]

# A worker may die by accident, for instance with its machine. A job of which two workers died is to blame itself.
_MOST_DEATHS = 2


class Report(NamedTuple):
    """News of a job: it has begun, or has ended with these outcomes."""

    job: Job
    outcomes: list[Outcome] | None = None


class Engine(Protocol):
    """Used in a `with` block, at the end of which trainings that are under way are stopped, each with a checkpoint."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def run(self, jobs: Sequence[Job]) -> Iterator[Report]:
        """Runs the jobs; news as they come."""
        ...


def after_a_death(job: Job, how: str) -> Job | Report:
    """What is to be done when the worker of a job has died: the job once more, or the report that it has failed."""
    again = dataclasses.replace(job, deaths=job.deaths + 1)
    if again.deaths < _MOST_DEATHS:
        return again
    why = f"its worker died {again.deaths} times, {how}"
    return Report(job, [Outcome(point.name, "failed", why) for point in job.points])
