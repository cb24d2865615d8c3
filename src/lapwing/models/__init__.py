"""Models: Equinox modules whose leaves are all arrays, so that each is its own tree of parameters."""

from ._blocks import Mixer
from ._cnn import Cnn, CnnError
from ._halting import Halted, Halting, Thought
from ._layer import Layer
from ._looped import Looped, LoopedError, LoopedSize
from ._positions import Positions
from ._resnet import ResNet, ResNetError
from ._thinker import Thinker, ThinkerError, ThinkerSize, room_for, sinusoids

__all__ = [
    "Cnn",
    "CnnError",
    "Halted",
    "Halting",
    "Layer",
    "Looped",
    "LoopedError",
    "LoopedSize",
    "Mixer",
    "Positions",
    "ResNet",
    "ResNetError",
    "Thinker",
    "ThinkerError",
    "ThinkerSize",
    "Thought",
    "room_for",
    "sinusoids",
]
