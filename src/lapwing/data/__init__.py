"""Problems to learn: data drawn on the device or read from files, and metrics of answers."""

from . import problems
from ._curriculum import Curriculum, Stage
from ._digits import Digits, DigitsError, DigitSplits, Source, epoch_batch, epoch_order, load_digits
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
    SequenceProblem,
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
    "DigitSplits",
    "Digits",
    "DigitsError",
    "Examples",
    "Name",
    "Score",
    "SequenceError",
    "SequenceProblem",
    "Source",
    "Split",
    "Stage",
    "cross_entropy",
    "epoch_batch",
    "epoch_order",
    "held_out",
    "load_digits",
    "problems",
    "score",
    "score_by_place",
    "trivial_answers",
]
