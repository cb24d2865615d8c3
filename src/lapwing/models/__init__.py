"""Models: Equinox modules whose leaves are all arrays, so that each is its own tree of parameters."""

from ._thinker import Thinker, ThinkerError, ThinkerSize, room_for

__all__ = ["Thinker", "ThinkerError", "ThinkerSize", "room_for"]
