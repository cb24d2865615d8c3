"""The doctor for PyTorch: the checks of `lapwing.check` for a module and the step that trains it.

Each check is a plain function with the `Report`, `CheckError` and words of its namesake for JAX. PyTorch is imported
when a check is called, never before; without it, a check raises one sentence. A module is left as it was found: its
parameters, buffers, gradients, modes and the state of the random generator.
"""

from lapwing.check._fresh import fresh_data

from ._dead import dead_parameters
from ._gradients import gradients
from ._influence import batch_independence, causality
from ._modes import modes
from ._structure import structure

__all__ = [
    "batch_independence",
    "causality",
    "dead_parameters",
    "fresh_data",
    "gradients",
    "modes",
    "structure",
]
