"""Where does the time go? A stopwatch, laps of named phases, and times of asynchronous device work.

`Stopwatch` answers a single question. `Laps` can stay in a training loop: its overhead is below 2 µs per phase and its
memory is bounded. `lapwing.report` turns its summary into tables and pictures. Only the standard library is needed.
"""

from ._command import CommandStartError, CommandTiming, time_command
from ._laps import Laps
from ._phase import Phase
from ._series import StepSeries
from ._stopwatch import Clock, Stopwatch
from ._summary import LapSummary, PhaseTimes, SummaryError
from ._table import lap_rows

__all__ = [
    "Clock",
    "CommandStartError",
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
