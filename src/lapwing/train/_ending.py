"""How a run ends, and what ends it before its last step."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from lapwing.core import suggestion

from ._config import ConfigError, FitConfig
from ._watch import Watch


class Ending(NamedTuple):
    """How the run ended, and why."""

    ended: Literal["finished", "stopped", "failed"]
    why: str = ""


def early_end(
    config: FitConfig, watch: Watch, done: int, known: Mapping[str, float], *, evaluates: bool
) -> Ending | None:
    """The first of the rules in `config.stop` that says that it is enough after `done` steps, with these metrics."""
    stop = config.stop
    if stop.metric not in known and not (evaluates and stop.metric.startswith("eval_")):
        raise ConfigError(
            f"stop.metric should be a metric, but is {stop.metric!r}; {suggestion(stop.metric, known)}"
        )
    if watch.waited_in_vain(config, done):
        return Ending("finished", f"no better loss for {done - watch.best_step} steps")
    if watch.rose_in_vain(config, done):
        why = f"no better {stop.rising} than the {watch.risen:.4g} of step {watch.risen_step}"
        return Ending("finished", why)
    value = known.get(stop.metric, math.nan)
    if value < stop.below or value > stop.above:
        return Ending("finished", f"{stop.metric} is {value:.6g}")
    return None
