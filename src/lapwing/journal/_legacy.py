"""Names in run folders that older versions of Lapwing wrote, translated when they are read.

config.json says in which format a run was written. Runs of format 1 are translated; those of the present format are
read as they are, so that a metric of a user's own may have any name. This is the only place with the old names.
"""

from collections.abc import Mapping
from typing import Any

FORMAT = 2
_SETTINGS = {"rate": "learning_rate"}
_METRICS = {"rate": "learning_rate", "prereg": "data_loss"}
_EVENTS = {"went on": "unpaused", "rate": "learning_rate"}
_COMMANDS = {"go on": "resume"}
_CONTROLS = {"lr": "learning_rate", "rate": "learning_rate"}


def modern_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A config, or the values of a state's controls, with the present names.

    >>> modern_settings({"rate": 0.1, "stop": {"below": 0.5}})
    {'learning_rate': 0.1, 'stop': {'below': 0.5}}
    """
    return _renamed(settings, _SETTINGS)


def modern_metrics(record: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics with the present names.

    >>> modern_metrics({"step": 3, "prereg": 2.0, "rate": 0.1})
    {'step': 3, 'data_loss': 2.0, 'learning_rate': 0.1}
    """
    return _renamed(record, _METRICS) if "rate" in record else record


def modern_event(event: dict[str, Any]) -> dict[str, Any]:
    """An event with the present names.

    >>> modern_event({"event": "rate", "step": 3, "rate": 0.1})
    {'event': 'learning_rate', 'step': 3, 'learning_rate': 0.1}
    >>> modern_event({"event": "applied", "command": "go on", "arguments": {}})
    {'event': 'applied', 'command': 'resume', 'arguments': {}}
    """
    event = _renamed(event, _METRICS)
    for field, names in (("event", _EVENTS), ("command", _COMMANDS)):
        if isinstance(event.get(field), str):
            event[field] = names.get(event[field], event[field])
    if event.get("command") == "set" and isinstance(event.get("arguments"), dict):
        event["arguments"] = _renamed(event["arguments"], _CONTROLS)
    return event


def _renamed(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in record.items()}
