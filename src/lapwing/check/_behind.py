"""Targets that are behind the inputs: what a causal model has seen already, and can copy.

`roll(tokens, 1)` is the token before, and the next one is `roll(tokens, -1)`. An echo, where a model should repeat what
it saw k steps ago, has such targets on purpose; then the first k targets are blank, or do not count.
"""

from typing import Any

import numpy as np

from ._jaxprs import place
from ._labels import TokenView
from ._report import fail

_MOST_BEHIND = 3


def check_behind(view: TokenView) -> None:
    """Raises if labels are tokens from before, and the loss counts first labels that no token can tell."""
    found = view.ahead()
    if found is None or found[0] >= 0:
        return
    behind = -found[0]
    first = np.zeros(view.labels.shape, bool)
    first[..., :behind] = True
    if not _is_blank(view.labels[..., :behind]) and view.counts(first):
        where = place(view.choice.eqn)
        fail(
            "labels",
            f"the label at time t is the token at time t − {behind} ({where}), which the model has seen already: the "
            "labels are shifted or rolled in the wrong direction, and copying is a perfect prediction",
            "the shift: the next token is jnp.roll(tokens, -1), or tokens[:, 1:] for inputs tokens[:, :-1]",
            [where],
        )


def behind_of(inputs: np.ndarray, targets: np.ndarray) -> int:
    """By how many steps targets [example, time, …] are behind inputs of the same shape; 0 where they are not.

    >>> x = np.random.default_rng(0).normal(size=(8, 12))
    >>> behind_of(x, np.roll(x, 1, axis=1)), behind_of(x, np.roll(x, -1, axis=1)), behind_of(x, x)
    (1, 0, 0)
    """
    if (
        inputs.shape != targets.shape
        or inputs.ndim < 2
        or inputs.shape[1] < 2 * _MOST_BEHIND
        or len(inputs) < 4
    ):
        return 0
    if len(np.unique(inputs)) < 3:
        return 0
    equal = {
        k: np.array_equal(targets[:, k:], inputs[:, : inputs.shape[1] - k]) for k in range(_MOST_BEHIND + 1)
    }
    return next((k for k in range(1, _MOST_BEHIND + 1) if equal[k] and not equal[0]), 0)


def check_series_behind(inputs: dict[str, np.ndarray], targets: np.ndarray, counts: Any) -> None:
    """`inputs`: the arrays of a batch by path, time along axis 1; `counts(k)`: whether the loss depends on the first k
    targets."""
    for path, values in inputs.items():
        behind = behind_of(values, targets)
        if behind and not _is_blank(targets[:, :behind]) and counts(behind):
            fail(
                "labels",
                f"the target at time t is {path} at time t − {behind}, which the model has seen already: the targets "
                "are shifted or rolled in the wrong direction, and copying is a perfect prediction",
                "the shift: what comes next is jnp.roll(x, -1, axis=1), or x[:, 1:] for inputs x[:, :-1]",
                [path],
            )


def _is_blank(first: np.ndarray) -> bool:
    """Whether the first labels are the same for all examples: a mark that there is nothing to repeat yet."""
    return bool((first == first.reshape(-1)[0]).all())
