"""What can be trained by name: `lapwing list` shows it, `lapwing train NAME` runs it.

An experiment is a module with two names: `Config`, a frozen dataclass that inherits `lapwing.train.FitConfig`
and whose fields, each with a line below it that says what it is, are the options of the command; and
`build(config)`, which returns the `lapwing.task.Task`. Reading this registry imports no jax.
"""

from lapwing.core import Entry, Registry

REGISTRY = Registry(
    "an experiment",
    "lapwing.experiments",
    {
        "adding": Entry("adding", "a GRU learns to add two marked numbers of a sequence"),
        "adversarial": Entry("adversarial", "a network learns to recognise digits under attack; seed 004"),
        "dmm-feedforward": Entry(
            "dmm_feedforward", "a dataflow matrix machine learns to find duplicate characters"
        ),
        "dmm-lite": Entry(
            "dmm_lite", "the same with 25 neurons, all linked to all; the published run of seed 000"
        ),
        "dmm-synthesis": Entry(
            "dmm_synthesis", "machines are trained and pruned until a person can read them"
        ),
        "superfluid": Entry(
            "superfluid", "a machine with mixed activation functions; the published runs of seed 001"
        ),
        "thinker": Entry("thinker", "a transformer that thinks in steps learns to copy, roll, sort or add"),
    },
)

__all__ = ["REGISTRY", "Entry"]
