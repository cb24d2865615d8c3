"""Problems to learn: data drawn on the device or read from files, and metrics of answers."""

from . import problems
from ._augment import Augmentation
from ._cifar import load_cifar10
from ._curriculum import Curriculum, Stage
from ._digits import load_digits
from ._images import ImageFileError, ImageSplits, LabelledImages, epoch_batch, epoch_order
from ._load import Source, load_images
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
    "Augmentation",
    "Curriculum",
    "Examples",
    "ImageFileError",
    "ImageSplits",
    "LabelledImages",
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
    "load_cifar10",
    "load_digits",
    "load_images",
    "problems",
    "score",
    "score_by_place",
    "trivial_answers",
]
