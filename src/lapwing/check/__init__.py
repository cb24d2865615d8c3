"""The doctor: checks for the mistakes that make a training run silently wrong (docs/twelve-ways.md).

A check is a plain function. It raises `CheckError`, whose message says what is wrong, where, and what to look at, or
returns a `Report`. Plain functions, Equinox modules and Flax nnx modules all work; `structure`, `fresh_data` and
`honest_timing` take data of any library. `run_all` and `quick` apply the checks to the training step of a task.
"""

from . import torch
from ._accumulation import accumulation
from ._attention import attention
from ._causality import causality
from ._cuts import cuts
from ._dead import dead_parameters, dead_settings
from ._devices import devices
from ._doctor import Outcome, quick, run_all
from ._fresh import fresh_data
from ._gradients import gradients
from ._independence import batch_independence
from ._keys import keys, workers
from ._labels import labels
from ._leakage import leakage, shared_examples
from ._learn import can_learn, trivial_loss
from ._modes import modes
from ._numbers import numbers
from ._optimizer import optimizer
from ._purity import purity
from ._report import CheckError, CheckInputError, Report
from ._restored import resume
from ._retrace import retrace
from ._same import same_numbers
from ._scale import scale
from ._structure import structure
from ._symmetry import symmetry
from ._targets import targets
from ._timing import honest_timing
from ._untrained import untrained

__all__ = [
    "CheckError",
    "CheckInputError",
    "Outcome",
    "Report",
    "accumulation",
    "attention",
    "batch_independence",
    "can_learn",
    "causality",
    "cuts",
    "dead_parameters",
    "dead_settings",
    "devices",
    "fresh_data",
    "gradients",
    "honest_timing",
    "keys",
    "labels",
    "leakage",
    "modes",
    "numbers",
    "optimizer",
    "purity",
    "quick",
    "resume",
    "retrace",
    "run_all",
    "same_numbers",
    "scale",
    "shared_examples",
    "structure",
    "symmetry",
    "targets",
    "torch",
    "trivial_loss",
    "untrained",
    "workers",
]
