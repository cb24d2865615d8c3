"""What can be trained by name: `lapwing list` shows it, `lapwing train NAME` runs it.

Reading this registry imports no jax.
"""

from lapwing._registry import Entry, Registry

REGISTRY = Registry("an experiment", "lapwing.experiments", {})

__all__ = ["REGISTRY", "Entry"]
