"""Images by the name of their source."""

from typing import Literal

from ._cifar import load_cifar10
from ._digits import load_digits
from ._images import ImageSplits

Source = Literal["digits", "mnist", "cifar10"]
"""Where images come from: the 8×8 digits that scikit-learn bundles, MNIST or CIFAR-10."""


def load_images(source: Source = "digits", data: str = "", *, verify: bool = True) -> ImageSplits:
    """Loads the images of a source: `digits` from scikit-learn, `mnist` and `cifar10` from files at `data`.

    >>> load_images("digits").train.shape
    (8, 8, 1)
    """
    return (
        load_cifar10(data, verify=verify) if source == "cifar10" else load_digits(source, data, verify=verify)
    )
