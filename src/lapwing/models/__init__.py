"""Models: Equinox modules whose leaves are all arrays, so that each is its own tree of parameters."""

from ._cnn import Cnn, CnnError
from ._layer import Layer
from ._thinker import Thinker, ThinkerError, ThinkerSize, room_for, sinusoids

__all__ = ["Cnn", "CnnError", "Layer", "Thinker", "ThinkerError", "ThinkerSize", "room_for", "sinusoids"]
