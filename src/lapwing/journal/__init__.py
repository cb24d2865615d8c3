"""The run folder: everything about a run, as files that a person or any program can read without Lapwing.

    config.json       the experiment's name and its settings
    environment.json  versions, device, commit, command line
    metrics.jsonl     numbers, a line a step
    events.jsonl      what happened, a line an event
    journal.md        the same as a story, for people
    laps.json         where the time went
    control/          the inbox for commands while it runs
    checkpoints/      states to go on from
    pictures/         what was drawn
    report.html       the same on one page, once it was asked for (`lapwing report`)
    lock              who writes it now

One process writes a run (`Run.create`, `Run.reopen`); any number read it, leave notes in it and post
commands to it (`Run.open`), also while it runs. Files only grow, every line is written whole, and nothing
is held back in a buffer, so a killed process loses nothing that it had logged. Numbers that are not finite
are the strings "NaN", "Infinity" and "-Infinity" (see `_json`). Standard library only, and numpy where columns
are asked for; on systems with `fcntl` (Linux, macOS).
"""

from ._curves import thin
from ._errors import JournalError
from ._find import find_run, run_folders, run_name
from ._inbox import Command
from ._json import decode as from_json
from ._json import encode as to_json
from ._run import Run, State
from ._story import changes, flat
from ._tail import BACK_TO, Tail
from ._writer import RunWriter

__all__ = [
    "BACK_TO",
    "Command",
    "JournalError",
    "Run",
    "RunWriter",
    "State",
    "Tail",
    "changes",
    "find_run",
    "flat",
    "from_json",
    "run_folders",
    "run_name",
    "thin",
    "to_json",
]
