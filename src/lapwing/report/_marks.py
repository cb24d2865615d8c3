"""Events of a run to mark on its curves: a changed learning rate, a rollback, a resume.

The curves leave out steps that a rollback undid, so a mark is where its effect is seen: a rollback at the step to which
the run returned, and what was set in the undone steps there too, since it is still in force. What was set after the
checkpoint from which a run was resumed is gone with those steps.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from lapwing.journal import Run

from ._drawing import AMBER, GREY, RED


@dataclass(frozen=True)
class Mark:
    """An event of a run, by its step.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.event("rollback", step=812, to=500)
    >>> [(mark.step, mark.text) for mark in marks_of(run)]
    [(500, 'back from 812')]
    """

    step: int
    text: str
    color: str
    note: str = field(default="", repr=False, compare=False)
    """Details, in the run's own words."""


def marks_of(run: Run) -> list[Mark]:
    """The marks of a run, in order of time.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.event("rollback", step=812, to=500)
    >>> marks_of(run)
    [Mark(step=500, text='back from 812', color='#d1453b')]
    """
    marks: list[Mark] = []
    for event in run.events():
        match event:
            case {"event": "rollback", "step": int(step), "to": int(to)}:
                marks = [replace(mark, step=min(mark.step, to)) for mark in marks]
                marks.append(Mark(to, f"back from {step}", RED, str(event.get("reason", ""))))
            case {"event": "resumed", "step": int(step)}:
                marks = [mark for mark in marks if mark.step <= step]
                marks.append(Mark(step, "resumed", GREY))
            case {"event": "learning_rate", "step": int(step), "learning_rate": float(rate)}:
                marks.append(Mark(step, f"learning_rate={rate:.4g}", AMBER))
            case {"event": "applied", "command": "set", "step": int(step), "arguments": dict(given)}:
                text = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
                marks.append(Mark(step, text, AMBER, str(event.get("outcome", ""))))
    return marks


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
