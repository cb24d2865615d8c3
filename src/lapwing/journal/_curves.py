"""A metric as a curve: its own steps and values, and as many points of them as a picture can show.

A metrics file has rows of several kinds: those of every step, and now and then one of an evaluation, which lacks the
loss. In columns what a row lacks is NaN, and so is a loss that really was not a number. They are told apart by the
company of the loss, the metrics that stand beside it in other rows: a row that has values, but none of that company
(only `eval_accuracy`), is of another kind, and any other row without a loss is one whose loss was NaN.

numpy is imported by the functions: a table of runs needs no curve and should not wait for it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Curve = tuple[np.ndarray, np.ndarray]


def curve_of(columns: "Mapping[str, np.ndarray]", name: str) -> "Curve":
    """The steps at which a metric was logged, and its values there; NaN only where it was NaN.

    >>> import numpy as np
    >>> nan = float("nan")
    >>> columns = {"step": [0, 1, 1, 2], "loss": [0.5, nan, nan, 0.1], "accuracy": [nan, nan, 0.9, nan]}
    >>> steps, losses = curve_of({key: np.array(value) for key, value in columns.items()}, "loss")
    >>> steps.tolist(), losses.tolist()
    ([0, 1, 2], [0.5, nan, 0.1])
    """
    import numpy as np

    values = columns[name]
    here = ~np.isnan(values)
    logged = np.ones(len(values), bool)
    if here.any() and not here.all():
        in_company, alone = here.copy(), np.zeros(len(values), bool)
        for other in columns.keys() - {"step", "time", name}:
            there = ~np.isnan(columns[other])
            part = in_company if (there & here).any() else alone
            part |= there
        logged = in_company | ~alone
    steps = columns["step"]
    logged &= np.isfinite(steps)  # A row without its step has no place on a curve.
    return steps[logged].astype(np.int64), values[logged]


def thin(steps: "np.ndarray", values: "np.ndarray", most: int) -> "Curve":
    """At most `most` points of a curve, among them the lowest and the highest of each stretch and all its ends.

    A single spike among a million steps is still there. What is not finite is neither lowest nor highest.

    >>> import numpy as np
    >>> values = np.ones(1000)
    >>> values[777] = 50.0
    >>> steps, kept = thin(np.arange(1000), values, most=20)
    >>> len(steps) <= 20, kept.max(), steps[kept.argmax()]
    (True, np.float64(50.0), np.int64(777))
    """
    import numpy as np

    if len(values) <= most:
        return steps, values
    stretches = max(1, (most - 2) // 2)
    edges = np.linspace(0, len(values), stretches + 1).astype(int)
    width = int(np.diff(edges).max())
    # Rows of equal length; what is added at the end repeats the last value of its stretch.
    places = np.minimum(edges[:-1, None] + np.arange(width), edges[1:, None] - 1)
    block = values[places]
    finite = np.isfinite(block)
    lowest = np.where(finite, block, np.inf).argmin(axis=1)
    highest = np.where(finite, block, -np.inf).argmax(axis=1)
    rows = np.arange(stretches)
    kept = np.unique([0, len(values) - 1, *places[rows, lowest], *places[rows, highest]])
    return steps[kept], values[kept]
