"""What the events of a run add up to: its state, its controls, its tags. Pure functions of a list of events."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ._commands import Argument
from ._controls import announced_control
from ._tail import Record

State = Literal["running", "paused", "finished", "failed", "stopped", "preempted", "lost"]
"""The states of a run."""
_STATE_AFTER: dict[str, State] = {
    "started": "running",
    "restarted": "running",
    "paused": "paused",
    "unpaused": "running",
    "finished": "finished",
    "failed": "failed",
    "stopped": "stopped",
    "preempted": "preempted",
}


def state_of(events: Iterable[Record]) -> State:
    """The state that the last event about it tells.

    >>> state_of([{"event": "started"}, {"event": "paused"}, {"event": "note"}])
    'paused'
    """
    state: State = "running"
    for event in events:
        state = _STATE_AFTER.get(str(event.get("event")), state)
    return state


def controls_of(events: Iterable[Record]) -> dict[str, float] | None:
    """What `set` can change, with the present values; None if the run has not announced it.

    >>> announced = {"event": "controls", "values": {"learning_rate": 0.1, "l1": 0.0}}
    >>> controls_of([announced, {"event": "rollback", "learning_rate": 0.05}])
    {'learning_rate': 0.05, 'l1': 0.0}
    """
    values: dict[str, float] | None = None
    for event in events:
        match event:
            case {"event": "controls", "values": dict(announced)}:
                values = _numbers(announced)
            case {"event": "applied", "command": "set", "arguments": dict(given)} if values:
                values |= {name: value for name, value in _numbers(given).items() if name in values}
            case {"event": "rollback" | "learning_rate"} if values:
                rates = ("learning_rate", "update_scale")
                values |= {name: rate for name, rate in _numbers(event).items() if name in rates}
    return values


def control_arguments_of(events: Iterable[Record]) -> dict[str, Argument] | None:
    """The same with the ranges of the values."""
    found = None
    for event in events:
        match event:
            case {"event": "controls", "values": dict(values)}:
                about = event.get("about")
                known = about if isinstance(about, dict) else {}
                found = {name: announced_control(name, known) for name in values}
    return found


def tags_of(events: Iterable[Record]) -> list[str]:
    """The tags that were added and not removed, in this order.

    >>> tags_of([{"event": "tagged", "add": ["best", "paper"]}, {"event": "tagged", "remove": ["best"]}])
    ['paper']
    """
    tags: dict[str, None] = {}
    for event in events:
        if event.get("event") == "tagged":
            tags |= {str(tag): None for tag in _list(event.get("add"))}
            removed = set(map(str, _list(event.get("remove"))))
            tags = {tag: None for tag in tags if tag not in removed}
    return list(tags)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {n: float(v) for n, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
