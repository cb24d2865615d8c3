"""Engines: where the jobs of a sweep run. An engine is an object with the methods of `Engine`.

All that is known about a point is in its run folder. So a job can run wherever the folder is visible, and again after
its worker was killed: it continues from the newest checkpoint.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol, Self

from ._job import Job, Outcome

EngineName = Literal["local", "ray"]

# A worker may die by accident, for instance with its machine. A job that loses two workers is itself to blame.
_MOST_DEATHS = 2


class Report(NamedTuple):
    """A job has started, or has ended with these outcomes, one for each of its points.

    >>> job = Job("adding", "runs/widths", {"width=8": {"width": 8}})
    >>> Report(job).outcomes is None, Report(job, [Outcome("width=8", "finished", "after 100 steps")]).outcomes[0].ended
    (True, 'finished')
    """

    job: Job
    outcomes: list[Outcome] | None = None


class Engine(Protocol):
    """What a sweep asks of an engine.

    A sweep enters it once and calls `run` for each round. Leaving the `with` block stops the trainings in progress,
    each with a checkpoint. `lapwing.sweep.run_job` does the work of a job, in whatever process it is called.

    >>> class Inline:
    ...     '''Trains in this process, one point after the other.'''
    ...     def __enter__(self):
    ...         return self
    ...     def __exit__(self, *_):
    ...         pass
    ...     def run(self, jobs):
    ...         for job in jobs:
    ...             yield Report(job)
    ...             yield Report(job, run_job(job))
    >>> from lapwing.sweep import run_job
    >>> with Inline() as engine:
    ...     list(engine.run([]))
    []
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def run(self, jobs: Iterable[Job]) -> Iterator[Report]:
        """Runs the jobs and yields reports as they come: at most one start and exactly one end of each job.

        An adaptive search makes each job when it is taken, so take one only when it can start.
        """
        ...


def engine_of(engine: EngineName | Engine) -> Engine:
    """The engine of a short form; an engine itself is returned as it is."""
    from ._local import LocalEngine
    from ._ray import RayEngine

    return {"local": LocalEngine, "ray": RayEngine}[engine]() if isinstance(engine, str) else engine


def report_or_repeat(job: Job, outcomes: list[Outcome]) -> Report | Job:
    """After a job: its report; or, if it was preempted while the sweep continues, the job to run again."""
    return (
        repeated(job) if any(outcome.ended == "preempted" for outcome in outcomes) else Report(job, outcomes)
    )


def repeated(job: Job) -> Job:
    """The job to run again after something that it is not to blame for."""
    return dataclasses.replace(job, attempts=job.attempts + 1)


def retry_or_fail(job: Job, cause: str) -> Job | Report:
    """After the worker of a job has died: the job to run again, or the report that it has failed."""
    again = dataclasses.replace(repeated(job), deaths=job.deaths + 1)
    if again.deaths < _MOST_DEATHS:
        return again
    why = f"its worker died {again.deaths} times, {cause}"
    return Report(job, [Outcome(name, "failed", why) for name in job.points])
