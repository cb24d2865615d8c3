"""Experiments by name: `lapwing list` shows them, `lapwing train NAME` runs one.

An experiment is a module with two names: `Config`, a frozen dataclass that inherits `lapwing.train.FitConfig` and whose
fields, each documented by a line below it, are the options of the command; and `build(config)`, which returns the
`lapwing.task.Task`. Reading this registry does not import jax.
"""

from typing import TYPE_CHECKING, Any

from lapwing.core import Entry, Registry

REGISTRY = Registry(
    "an experiment",
    "lapwing.experiments",
    {
        "adding": Entry("adding", "a GRU learns to add two marked numbers of a sequence"),
        "adversarial": Entry("adversarial", "a network learns to classify digits under attack"),
        "dmm-feedforward": Entry(
            "dmm_feedforward", "a dataflow matrix machine learns to find duplicate characters"
        ),
        "dmm-lite": Entry(
            "dmm_lite", "the same with 25 neurons, all linked to all; --start published: the run of June 2022"
        ),
        "dmm-synthesis": Entry(
            "dmm_synthesis", "machines are trained and pruned until a person can read them"
        ),
        "superfluid": Entry(
            "superfluid", "a machine with mixed activation functions; the published superfluid runs"
        ),
        "thinker": Entry("thinker", "a transformer that thinks in steps learns to copy, roll, sort or add"),
    },
)

__all__ = ["REGISTRY", "Entry", "load_model"]


if TYPE_CHECKING:
    from ._model import load_model


def __getattr__(name: str) -> Any:
    if name == "load_model":  # It imports jax.
        from ._model import load_model

        return load_model
    raise AttributeError(f"module 'lapwing.experiments' has no attribute {name!r}")
