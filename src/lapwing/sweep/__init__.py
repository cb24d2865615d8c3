"""Grids and searches: many runs of one experiment, on the cores of this machine or on a Ray cluster.

    runs/NAME/sweep.json      what is swept
    runs/NAME/summary.json    mean, spread and success of every combination, and what failed
    runs/NAME/summary.csv     the same as a table
    runs/NAME/heatmap.png     the same as a picture
    runs/NAME/logs/           output of the workers
    runs/NAME/POINT/          a run folder like any other, one for each combination and seed

All state is in the folder: a sweep that was stopped or killed continues when it is run again. A `Search` chooses the
combinations in rounds, an `AdaptiveSearch` one by one, and an `Engine` runs them: small interfaces that yours can
implement. Importing this does not import jax; describing a sweep imports its experiment, and only the workers compute.
"""

from ._axes import Axis, SweepError
from ._engine import Engine, Report
from ._job import Job, Outcome, run_job
from ._local import LocalEngine
from ._optuna import Optuna
from ._points import Candidate, Point, Sweep
from ._ray import RayEngine
from ._results import Measure
from ._run import SweepResult, run_sweep
from ._search import (
    AdaptiveSearch,
    Costs,
    Grid,
    Halving,
    Random,
    Round,
    Rounds,
    Search,
    Trial,
    search_of,
)
from ._summary import load as load_sweep

__all__ = [
    "AdaptiveSearch",
    "Axis",
    "Candidate",
    "Costs",
    "Engine",
    "Grid",
    "Halving",
    "Job",
    "LocalEngine",
    "Measure",
    "Optuna",
    "Outcome",
    "Point",
    "Random",
    "RayEngine",
    "Report",
    "Round",
    "Rounds",
    "Search",
    "Sweep",
    "SweepError",
    "SweepResult",
    "Trial",
    "load_sweep",
    "run_job",
    "run_sweep",
    "search_of",
]
