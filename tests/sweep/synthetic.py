"""An engine that trains nothing: the loss of a point is a formula of its settings, written to a real run folder.

It obeys the command `stop`, so all that a sweep does with points can be tested in milliseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lapwing.journal import Run
from lapwing.sweep import Job, Outcome, Report

Loss = Callable[[Mapping[str, Any], float], float]
"""The loss of some settings after a fraction of the training."""


class SyntheticEngine:
    """Runs one job after the other in this process. `after_step` is called after each step, and `interrupt_after` jobs
    the next one raises Ctrl-C."""

    def __init__(
        self, loss: Loss, *, after_step: Callable[[], None] | None = None, interrupt_after: int | None = None
    ):
        self._loss, self._after_step, self._interrupt_after = loss, after_step, interrupt_after
        self.steps = 0
        self.started: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, jobs: Iterable[Job]) -> Iterator[Report]:
        for job in jobs:
            if self._interrupt_after is not None and len(self.started) >= self._interrupt_after:
                raise KeyboardInterrupt
            yield Report(job)
            yield Report(job, [self._train(Path(job.folder), *point) for point in job.points.items()])

    def _train(self, folder: Path, name: str, settings: Mapping[str, Any]) -> Outcome:
        self.started.append(name)
        path, total = folder / name, settings["steps"]
        run = (
            Run.reopen(path) if path.exists() else Run.create("adding", settings, runs_dir=folder, name=name)
        )
        with run:
            for step in range(total):
                loss = self._loss(settings, (step + 1) / total)
                run.log({"step": step, "loss": loss, "accuracy": 1 / (1 + loss)})
                self.steps += 1
                if self._after_step:
                    self._after_step()
                for command in run.poll():
                    run.applied(command)
                    if command.name == "stop":
                        run.end("stopped", "by the command stop")
                        return Outcome(name, "stopped", "by the command stop")
            last = self._loss(settings, 1.0)
            if last == float("inf"):
                run.end("failed", "the loss is not finite")
                return Outcome(name, "failed", "the loss is not finite")
            run.end("finished", f"loss {last}", steps=total)
        return Outcome(name, "finished", "")
