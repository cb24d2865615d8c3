"""The run folder: everything about a run, in files that a person or any program can read without Lapwing.

    config.json       name and config of the experiment
    environment.json  versions, device, commit, command line
    metrics.jsonl     numbers, one line per step
    events.jsonl      what happened, one line per event
    journal.md        the same events as text, for people
    system.jsonl      what it uses of its machine: CPU, memory, GPUs
    laps.json         where the time went
    control/          inbox for commands while it runs
    checkpoints/      states to resume from
    media/            images, figures and tables that were logged
    pictures/         drawings of the whole run
    report.html       everything on one page (written by `lapwing report`)
    lock              which process writes the run
    .best.json        how far its metrics have been searched for the best one

One process writes a run (`Run.create`, `Run.reopen`). Any number of others read it, add notes and post commands
(`Run.open`), also while it runs; `COMMANDS` is the table of commands. Files only grow, every line is written whole, and
nothing is buffered, so a killed process loses nothing that it had logged. Numbers that are not finite are the strings
"NaN", "Infinity" and "-Infinity" (see `_json`). Names that older versions wrote are translated when they are read (see
`_legacy`). Only the standard library is needed, and numpy for columns; on systems with `fcntl` (Linux, macOS).
"""

from ._best import Best
from ._checkpoint import (
    NOT_OURS,
    SUFFIX,
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    Leaf,
    checkpoint_files,
    read_arrays,
    read_checkpoint,
    serial_of,
    write_checkpoint,
)
from ._commands import (
    COMMANDS,
    CommandError,
    CommandSpec,
    command_table,
    control_table,
    convert_arguments,
    find_command,
)
from ._curves import thin
from ._environment import environment
from ._errors import JournalError
from ._find import check_name, find_run, run_folders, run_name
from ._guard import FilesLostError
from ._inbox import Command
from ._json import decode as from_json
from ._json import encode as to_json
from ._legacy import modern_settings
from ._lock import Lock, LockedError, LostLockError
from ._logged import still_part
from ._media import Histogram, Image, Table
from ._params import Which, arrays_of, choose_checkpoint
from ._remove import remove_run
from ._run import Run, State
from ._safetensors import write_npz, write_safetensors
from ._story import changes, flat, moment
from ._system import describe_system
from ._tail import BACK_TO, Tail, stretches
from ._writer import RunWriter

__all__ = [
    "BACK_TO",
    "COMMANDS",
    "NOT_OURS",
    "SUFFIX",
    "Best",
    "Checkpoint",
    "CheckpointError",
    "Command",
    "CommandError",
    "CommandSpec",
    "DamagedCheckpointError",
    "FilesLostError",
    "Histogram",
    "Image",
    "JournalError",
    "Leaf",
    "Lock",
    "LockedError",
    "LostLockError",
    "Run",
    "RunWriter",
    "State",
    "Table",
    "Tail",
    "Which",
    "arrays_of",
    "changes",
    "check_name",
    "checkpoint_files",
    "choose_checkpoint",
    "command_table",
    "control_table",
    "convert_arguments",
    "describe_system",
    "environment",
    "find_command",
    "find_run",
    "flat",
    "from_json",
    "modern_settings",
    "moment",
    "read_arrays",
    "read_checkpoint",
    "remove_run",
    "run_folders",
    "run_name",
    "serial_of",
    "still_part",
    "stretches",
    "thin",
    "to_json",
    "write_checkpoint",
    "write_npz",
    "write_safetensors",
]
