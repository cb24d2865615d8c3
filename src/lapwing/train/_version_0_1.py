"""New names for what Lapwing 0.1 wrote into a checkpoint: its leaves and record. Options: `journal.modern_settings`."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from lapwing.journal import modern_settings

from ._optimizer import TASK

Leaf = TypeVar("Leaf")

# From the path of a leaf in the state of a run to its path now, the first that matches.
_PATHS = {
    r"controls/rate$": "optimizer/hyperparams/learning_rate",
    r"controls/(clip|weight_decay)$": r"optimizer/hyperparams/\1",
    r"controls/penalties/": "penalties/",
    r"optimizer/": f"optimizer/inner_state/{TASK}/",
    r"optimizer$": f"optimizer/inner_state/{TASK}",
}


def new_leaves(leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The leaves of a checkpoint under their present paths; those of anything but a run keep theirs.

    >>> new_leaves({"step": 7, "controls/clip": 1, "optimizer/mu/w": 2, "params/w": 3})
    {'step': 7, 'optimizer/hyperparams/clip': 1, 'optimizer/inner_state/1/mu/w': 2, 'params/w': 3, 'optimizer/count': 7}
    """
    if "controls/clip" not in leaves:
        return dict(leaves)
    return {_new_path(path): leaf for path, leaf in leaves.items()} | {"optimizer/count": leaves["step"]}


def new_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the loop stores with a state, in its present form."""
    if "watch" not in record:
        return dict(record)
    rest = {name: value for name, value in record.items() if name != "watch"}
    watch = record["watch"]
    trend = {name: watch[name] for name in ("best", "best_step", "skipped", "losses", "norms")}
    return rest | {
        "config": modern_settings(record["config"]),
        "controls": modern_settings(record["controls"]),
        "trend": {"loss": watch["smoothed"], "gradient_norm": watch["usual_norm"], **trend},
        "rules": {
            "Divergence": {"skipped": watch["skipped_on_end"], "above": watch["above_on_end"]},
            "Plateau": watch["cut_step"],
            "EarlyStop": {"best": watch["risen"], "step": watch["risen_step"]},
        },
    }


def _new_path(path: str) -> str:
    return next((re.sub(f"^{old}", new, path) for old, new in _PATHS.items() if re.match(old, path)), path)
