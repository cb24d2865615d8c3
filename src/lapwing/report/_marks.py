"""What happened to a run that its curves should show: a rate set or cut, a rollback, a resumption.

The curves of a run show the steps that count, so a mark stands where its effect is seen on them: a rollback at the step
to which the run went back, and what was set in the steps that it undid there too, since it is still in force. What was
set after the checkpoint from which a run was resumed is gone with those steps.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from lapwing.journal import Run

from ._drawing import AMBER, GREY, RED


@dataclass(frozen=True)
class Mark:
    """A moment of a run, by its step."""

    step: int
    text: str
    color: str
    note: str = field(default="", repr=False, compare=False)
    """What the run said about it, where there is more to say."""


def marks_of(run: Run) -> list[Mark]:
    """In the order in which they happened.

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
                said = ", ".join(f"{name}={_short(value)}" for name, value in given.items())
                marks.append(Mark(step, said, AMBER, str(event.get("outcome", ""))))
    return marks


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
