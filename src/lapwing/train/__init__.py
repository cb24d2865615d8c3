"""The training loop. `fit(task, config, run)` is all that an experiment needs.

A task says what is trained (`Task`), a config how (`FitConfig`), a run folder keeps what happened
(`lapwing.journal`). The loop itself is in `_fit.py` and reads top to bottom; the computation of one step is
in `_step.py`.
"""

from ._config import ConfigError, FitConfig, check_option
from ._fit import FitResult, fit
from ._state import Controls, State, device_name
from ._task import Task, TaskError

__all__ = [
    "ConfigError",
    "Controls",
    "FitConfig",
    "FitResult",
    "State",
    "Task",
    "TaskError",
    "check_option",
    "device_name",
    "fit",
]
