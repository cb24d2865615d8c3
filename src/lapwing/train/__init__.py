"""The training loop. `fit(task, config, run)` is all that an experiment needs.

A task says what is trained (`Task`), a config how (`FitConfig`), a run folder keeps what happened
(`lapwing.journal`). The order of things is in `_fit.py` and reads top to bottom; each thing is a method of `Loop`;
the computation of one step is in `_step.py`. Several runs share a device in `_many.py`, one run has several devices in
`_devices.py`, and several processes in `_processes.py`.
"""

from ._checkpoints import Checkpoint, CheckpointError, Checkpoints
from ._config import Checkpointing, ConfigError, FitConfig, Rollback, Schedule, Stop, check_option
from ._config_json import config_from
from ._fit import FitResult, fit
from ._many import VECTORIZED, fit_many
from ._processes import LostProcessError, is_first, join_processes
from ._state import Controls, State, device_name, initial_state
from ._step import Phases, make_phases, take_step

__all__ = [
    "VECTORIZED",
    "Checkpoint",
    "CheckpointError",
    "Checkpointing",
    "Checkpoints",
    "ConfigError",
    "Controls",
    "FitConfig",
    "FitResult",
    "LostProcessError",
    "Phases",
    "Rollback",
    "Schedule",
    "State",
    "Stop",
    "check_option",
    "config_from",
    "device_name",
    "fit",
    "fit_many",
    "initial_state",
    "is_first",
    "join_processes",
    "make_phases",
    "take_step",
]
