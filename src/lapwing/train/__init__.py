"""The training loop. `fit(task, config, run)` is all that an experiment needs.

A task says what is trained (`lapwing.task.Task`), a config how (`FitConfig`), a run folder keeps what happened
(`lapwing.journal`). The story is in `_fit.py` and reads top to bottom; each of its lines is a method of `TrainingLoop`.

- `_step.py` is the computation of a step, `_optimizer.py` its update; `_program.py` compiles it, `_timer.py` times it.
- `_rule.py` is the interface of what decides, `_rules.py` the rules that every run has.
- `_callbacks.py` calls callbacks.
- `_watchers.py` reports what looks wrong, `_watching.py` shows it the run; `_probe.py` and `_units.py` look into a
  step, `_replay.py` finds the first value that is not finite.
- `_transfer.py` brings metrics to the host, `_logbook.py` keeps and writes them.
- `_table.py` steps many runs together, `_devices.py` splits a run over devices, `_processes.py` over processes.
"""

from ._checkpoint_arrays import tree_like
from ._checkpoints import Checkpoint, CheckpointError, Checkpoints
from ._config import (
    Checkpointing,
    ConfigError,
    FitConfig,
    Rollback,
    Schedule,
    ScheduleKind,
    Stop,
    Watch,
    check_option,
)
from ._config_json import config_from
from ._evaluation import evaluation_names, make_evaluation
from ._feed import Fed, check_data, first_feds
from ._fit import fit, fit_many
from ._gradient import Aux, full_loss, parts_of
from ._processes import LostProcessError, is_first, join_processes
from ._result import FitResult
from ._rule import (
    ChangeState,
    Criterion,
    EndRun,
    MarkBest,
    RollBackToBest,
    Rule,
    SetLearningRate,
    Steps,
    Trend,
    Window,
)
from ._rules import check_metrics
from ._state import Controls, State, device_name, initial_state, key_at
from ._step import Phases, make_phases, take_step
from ._table import VECTORIZED

__all__ = [
    "VECTORIZED",
    "Aux",
    "ChangeState",
    "Checkpoint",
    "CheckpointError",
    "Checkpointing",
    "Checkpoints",
    "ConfigError",
    "Controls",
    "Criterion",
    "EndRun",
    "Fed",
    "FitConfig",
    "FitResult",
    "LostProcessError",
    "MarkBest",
    "Phases",
    "RollBackToBest",
    "Rollback",
    "Rule",
    "Schedule",
    "ScheduleKind",
    "SetLearningRate",
    "State",
    "Steps",
    "Stop",
    "Trend",
    "Watch",
    "Window",
    "check_data",
    "check_metrics",
    "check_option",
    "config_from",
    "device_name",
    "evaluation_names",
    "first_feds",
    "fit",
    "fit_many",
    "full_loss",
    "initial_state",
    "is_first",
    "join_processes",
    "key_at",
    "make_evaluation",
    "make_phases",
    "parts_of",
    "take_step",
    "tree_like",
]
