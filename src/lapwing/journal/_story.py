"""The text of journal.md, which a person reads without Lapwing. Pure functions from data to text."""

import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

HEADING = "## What happened\n"
_LONGEST_CELL = 80


def opening(name: str, settings: Mapping[str, Any], environment: Mapping[str, Any], started: float) -> str:
    """The beginning of a journal: what was started, when, where, with which settings."""
    return "\n".join(
        [
            f"# {name}",
            "",
            f"Started {moment(started)} UTC by",
            "",
            f"    {shlex.join(environment['command'])}",
            "",
            f"on {surroundings(environment)}.",
            "",
            *_table(settings),
            HEADING,
            "",
        ]
    )


def entry(text: str, when: float) -> str:
    """One item of the list of events; further lines of the text are indented.

    >>> entry("note: two" + chr(10) + "lines", 0.0)
    '- 1970-01-01 00:00:00 note: two\\n  lines\\n'
    """
    first, *more = text.splitlines() or [""]
    return "".join(line + "\n" for line in [f"- {moment(when)} {first}", *(f"  {line}" for line in more)])


def surroundings(environment: Mapping[str, Any]) -> str:
    """Host, device and versions as a phrase."""
    cores = f"{environment['cores']} core{'s' * (environment['cores'] != 1)}"
    parts = [
        f"{environment['host']} ({cores}, {environment['device'] or 'unknown device'})",
        environment["platform"],
        f"Python {environment['python']}",
        *(f"{name} {version}" for name, version in environment["versions"].items()),
    ]
    if git := environment["git"]:
        parts.append(f"git {git['commit'][:10]}" + " with uncommitted changes" * git["dirty"])
    return ", ".join(parts)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two nested dicts, by path.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    {'a.c': (2, 3)}
    """
    old, new = dict(flat(before)), dict(flat(now))
    paths = {**old, **new}
    return {path: (old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)}


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested dict with their paths.

    >>> list(flat({"model": {"width": 8}, "steps": 5}))
    [('model.width', 8), ('steps', 5)]
    """
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _table(settings: Mapping[str, Any]) -> list[str]:
    if not settings:
        return []
    rows = [f"| {_cell(path)} | {_cell(value)} |" for path, value in flat(settings)]
    return ["| setting | value |", "|---|---|", *rows, ""]


def _cell(value: Any) -> str:
    text = " ".join(str(value).split()).replace("|", "\\|")
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def moment(when: float) -> str:
    """A time in UTC.

    >>> moment(0.0)
    '1970-01-01 00:00:00'
    """
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(when))
