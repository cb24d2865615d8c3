"""What can be trained by name: `lapwing list` shows it, `lapwing train NAME` runs it.

An experiment is a module with two names: `Config`, a frozen dataclass that inherits `lapwing.train.FitConfig`
and whose fields, each with a line below it that says what it is, are the options of the command; and
`build(config)`, which returns the `lapwing.train.Task`. Reading this registry imports no jax.
"""

from lapwing._registry import Entry, Registry

REGISTRY = Registry(
    "an experiment",
    "lapwing.experiments",
    {
        "adding": Entry("adding", "a GRU learns to add two marked numbers of a sequence"),
    },
)

__all__ = ["REGISTRY", "Entry"]
