"""Synthesis: from examples of behaviour to a machine that a person can read.

`synthesize` trains machines from random starts, prunes them until no link can go, and simplifies the result. `repair`
trains a broken machine until it is right again. Each name is imported on first use: judging or pruning a machine in a
file does not import the training loop.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Change": "_repair",
    "Damage": "_damage",
    "Examples": "_examples",
    "RepairConfig": "_repair",
    "Repaired": "_repair",
    "Superfluid": "_superfluid",
    "SuperfluidConfig": "_superfluid_config",
    "Synthesis": "_synthesize",
    "SynthesisConfig": "_config",
    "Synthesized": "_synthesize",
    "by_field": "_examples",
    "damaged": "_damage",
    "errors_on": "_examples",
    "prune": "_prune",
    "repair": "_repair",
    "repair_all": "_repair",
    "superfluid_task": "_superfluid_results",
    "synthesis_task": "_synthesize",
    "synthesize": "_synthesize",
    "tests_of": "_examples",
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from ._config import SynthesisConfig  # noqa: F401
    from ._damage import Damage, damaged  # noqa: F401
    from ._examples import Examples, by_field, errors_on, tests_of  # noqa: F401
    from ._prune import prune  # noqa: F401
    from ._repair import Change, RepairConfig, Repaired, repair, repair_all  # noqa: F401
    from ._superfluid import Superfluid  # noqa: F401
    from ._superfluid_config import SuperfluidConfig  # noqa: F401
    from ._superfluid_results import superfluid_task  # noqa: F401
    from ._synthesize import Synthesis, Synthesized, synthesis_task, synthesize  # noqa: F401


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'lapwing.synthesis' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(f"lapwing.synthesis.{_HOME[name]}"), name)
