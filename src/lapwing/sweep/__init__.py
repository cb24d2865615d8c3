"""Grids and searches: many runs of one experiment, on the cores of this machine or on a Ray cluster.

    runs/NAME/sweep.json      what is swept
    runs/NAME/summary.json    mean, spread and success of every combination, and what failed
    runs/NAME/summary.csv     the same as a table
    runs/NAME/heatmap.png     the same as a picture
    runs/NAME/logs/           what the workers printed
    runs/NAME/POINT/          a run folder like any other, one for each combination and seed

The folder is all there is: whatever has been stopped or killed goes on when the same sweep is run again. Importing this
imports no jax; describing a sweep imports its experiment, and only the workers compute.
"""

from ._axes import Axis, SweepError
from ._points import Candidate, Point, Search, Sweep
from ._results import Measure
from ._run import Resources, SweepResult, run_sweep
from ._summary import load as load_sweep

__all__ = [
    "Axis",
    "Candidate",
    "Measure",
    "Point",
    "Resources",
    "Search",
    "Sweep",
    "SweepError",
    "SweepResult",
    "load_sweep",
    "run_sweep",
]
