"""New names for what earlier versions of Lapwing wrote into a checkpoint: its leaves and record. Options:
`journal.modern_settings`.

Version 0.1 wrote Orbax checkpoints (`new_leaves`, `new_record`). Soon after it a task's optimizer came without its
learning rate and was the second transformation of a chain of Lapwing's (`present_leaves`).
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from lapwing.journal import modern_settings

Leaf = TypeVar("Leaf")
_CHAIN = "optimizer/inner_state/1"  # The place of the task's optimizer in the chain.

# From the path of a leaf in the state of a run to its path now, the first that matches.
_PATHS = {
    r"controls/rate$": "optimizer/hyperparams/learning_rate",
    r"controls/(clip|weight_decay)$": r"optimizer/hyperparams/\1",
    r"controls/penalties/": "penalties/",
    r"optimizer/": f"{_CHAIN}/",
    r"optimizer$": _CHAIN,
}


def new_leaves(leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The leaves of a checkpoint under their present paths; those of anything but a run keep theirs.

    >>> new_leaves({"step": 7, "controls/clip": 1, "optimizer/mu/w": 2, "params/w": 3})
    {'step': 7, 'optimizer/hyperparams/clip': 1, 'optimizer/inner_state/1/mu/w': 2, 'params/w': 3, 'optimizer/count': 7}
    """
    if "controls/clip" not in leaves:
        return dict(leaves)
    return {_new_path(path): leaf for path, leaf in leaves.items()} | {"optimizer/count": leaves["step"]}


def present_leaves(leaves: Mapping[str, Leaf], wanted: Collection[str]) -> dict[str, Leaf]:
    """The leaves of a checkpoint of any version under the paths of a state now, which are `wanted`.

    An optimizer that came without its learning rate is the first of a chain now, as `optax.adam` is.

    >>> present_leaves({"optimizer/inner_state/1/mu": 2, "optimizer/count": 7}, {"optimizer/task/0/mu"})
    {'optimizer/task/0/mu': 2}
    """
    if not any(path.startswith(_CHAIN) for path in leaves) and "optimizer/count" not in leaves:
        return dict(leaves)
    present = {}
    for path, leaf in leaves.items():
        ends = path.removeprefix(_CHAIN)
        if path != "optimizer/count":
            paths = [f"optimizer/task{ends}", f"optimizer/task/0{ends}"] if ends != path else [path]
            present[next((each for each in paths if each in wanted), paths[0])] = leaf
    return present


def flat_controls(controls: Mapping[str, Any]) -> dict[str, float]:
    """The controls of a record by name; the penalties' weights were apart.

    >>> flat_controls({"clip": 1.0, "penalties": {"l1": 0.5}})
    {'clip': 1.0, 'l1': 0.5}
    """
    apart = controls.get("penalties")
    if not isinstance(apart, Mapping):
        return dict(controls)
    return {name: value for name, value in controls.items() if name != "penalties"} | dict(apart)


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
