"""What is learned: data drawn on the device or read from files, and how good answers are."""

from ._curriculum import Curriculum, Stage
from ._measures import Score, cross_entropy, score, score_by_place, trivial_answers
from ._sequences import (
    END,
    FIRST,
    HELD_OUT,
    NAMES,
    PAD,
    Examples,
    Name,
    SequenceError,
    SequenceTask,
    Split,
    held_out,
)

__all__ = [
    "END",
    "FIRST",
    "HELD_OUT",
    "NAMES",
    "PAD",
    "Curriculum",
    "Examples",
    "Name",
    "Score",
    "SequenceError",
    "SequenceTask",
    "Split",
    "Stage",
    "cross_entropy",
    "held_out",
    "score",
    "score_by_place",
    "trivial_answers",
]
