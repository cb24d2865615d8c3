"""The events of `run.log` that are still part of a run.

A run that returns to an earlier step writes this into its metrics, and, if something was logged from that step on, as
an event of its own: `{"event": "back_to", "step": 1200}`. What was logged before it at that step or later is undone.
"""

from collections.abc import Iterable

from ._tail import Record

LOGGED = "logged"


def still_part(events: Iterable[Record]) -> list[Record]:
    """The events `logged` that no rollback has undone, oldest first.

    >>> entry = {"event": "logged", "name": "sample", "kind": "text", "text": "a"}
    >>> [e["step"] for e in still_part([{**entry, "step": 1}, {**entry, "step": 2}, {"event": "back_to", "step": 2}])]
    [1]
    """
    kept: list[Record] = []
    for event in events:
        match event:
            case {"event": "logged", "step": int(), "name": str(), "kind": str()}:
                kept.append(event)
            case {"event": "back_to", "step": int(step)}:
                kept = [entry for entry in kept if entry["step"] < step]
    return kept
