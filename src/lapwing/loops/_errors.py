"""The error of this layer."""

from lapwing.core import LapwingError


class LoopError(LapwingError, ValueError):
    """An option of `scan`, `accelerate` or `explain` that does not fit."""
