"""Targets that the model is given: a series that is to be continued and is its own target, hidden words that do not
count.

An autoencoder has its inputs as targets on purpose, and most autoencoders see all of them at once. A model that reads
a series step by step, and is asked at each step for what it was just given, has nothing to predict.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._jaxprs import place
from ._labels import TokenView
from ._report import fail

_HIDDEN = (0.02, 0.7)
_ONE_MARK = 0.9


def check_given(
    same: Sequence[str],
    targets: np.ndarray,
    counts: Callable[[int, str], bool],
    reacts: Callable[[str, int], np.ndarray],
) -> None:
    """Raises if the target of each time is what a causal model is given at that time.

    **Arguments**

    - `same`: the paths of two arrays of the batch that are equal to the targets, which have time along axis 1.
    - `counts(first, path)`: whether the loss changes with the first times of an array.
    - `reacts(path, time)`: at which times the outputs change with an array at one time.
    """
    length = targets.shape[1]
    if length < 4 or np.ptp(targets.astype(np.float64)) == 0:
        return
    middle = length // 2
    read = {path: reacts(path, middle) for path in same}
    given = [path for path in same if read[path].any()]
    if len(given) != 1:
        return
    (goal,) = (path for path in same if path != given[0])
    at = read[given[0]]
    # The first target counts: the loss does not shift them itself.
    if len(at) == length and at[middle] and not at[:middle].any() and counts(1, goal):
        fail(
            "labels",
            f"the target at time t ({goal}) is {given[0]} at time t, which the model is given: the targets are the "
            "inputs, not shifted, and copying is a perfect prediction",
            "the shift: what comes next is x[:, 1:] for inputs x[:, :-1]",
            [goal],
        )


def check_shown(view: TokenView) -> None:
    """Raises if a loss with hidden tokens counts only those that are shown: where it counts, the label is the token
    that the model is given, and where the token is hidden it does not count."""
    for tokens in view.token_values:
        if tokens.shape != view.labels.shape or tokens.ndim < 2:
            continue
        hidden = tokens != view.labels
        if not _HIDDEN[0] <= hidden.mean() <= _HIDDEN[1] or not _is_mark(tokens[hidden], view.labels):
            continue
        if view.counts(~hidden) and not view.counts(hidden):
            fail(
                "labels",
                f"the loss counts the tokens that the model is shown, and none of the {hidden.mean():.0%} that are "
                f"hidden from it ({place(view.choice.eqn)}): copying is a perfect prediction",
                "the mask of the loss, which is inverted: it should be 1 where a token is hidden",
                [place(view.choice.eqn)],
            )


def _is_mark(hidden: Any, labels: np.ndarray) -> bool:
    """Whether nearly all hidden tokens are one number that is no label."""
    kinds, counts = np.unique(hidden, return_counts=True)
    return bool(counts.max() >= _ONE_MARK * counts.sum() and kinds[counts.argmax()] not in labels)
