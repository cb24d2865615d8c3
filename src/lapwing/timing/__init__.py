"""Where does the time go? A stopwatch, laps of named phases, honest device times; the standard library only.

`Stopwatch` is for a question asked once. `Laps` stays in a training loop: its overhead is below 2 µs a phase
and its memory does not grow. Tables in colour and pictures are made of its summary by `lapwing.report`.
"""

from ._command import CommandError, CommandTiming, time_command
from ._laps import Laps
from ._phase import Phase
from ._series import StepSeries
from ._stopwatch import Clock, Stopwatch
from ._summary import LapSummary, PhaseTimes, SummaryError
from ._table import lap_rows

__all__ = [
    "Clock",
    "CommandError",
    "CommandTiming",
    "LapSummary",
    "Laps",
    "Phase",
    "PhaseTimes",
    "StepSeries",
    "Stopwatch",
    "SummaryError",
    "lap_rows",
    "time_command",
]
