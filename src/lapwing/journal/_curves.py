"""A metric as a curve: its own steps and values, thinned to as many points as a picture can show.

A metrics file has rows of several kinds: one per step, and sometimes one of an evaluation, which has no loss. In
columns a missing value is NaN, and so is a loss that was not a number. The other metrics tell them apart: a row that
has values, but none of the metrics that are logged together with the loss (only `eval_accuracy`), is of another kind;
in any other row without a loss, the loss was NaN.

numpy is imported by the functions, since a table of runs needs no curves.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Curve = tuple[np.ndarray, np.ndarray]


def curve_of(columns: "Mapping[str, np.ndarray]", name: str) -> "Curve":
    """The steps at which a metric was logged, and its values there; NaN only where the logged value was NaN.

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
        together, apart = here.copy(), np.zeros(len(values), bool)
        for other in columns.keys() - {"step", "time", name}:
            there = ~np.isnan(columns[other])
            part = together if (there & here).any() else apart
            part |= there
        logged = together | ~apart
    steps = columns["step"]
    logged &= np.isfinite(steps)  # A row without a step cannot be drawn.
    return steps[logged].astype(np.int64), values[logged]


def thin(steps: "np.ndarray", values: "np.ndarray", most: int) -> "Curve":
    """At most `most` points of a curve: the minimum and the maximum of each stretch, and both ends.

    A single spike among a million steps is kept. Values that are not finite are neither minimum nor maximum.

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
    # Rows of equal length, padded with the last value of each stretch.
    indices = np.minimum(edges[:-1, None] + np.arange(width), edges[1:, None] - 1)
    block = values[indices]
    finite = np.isfinite(block)
    lowest = np.where(finite, block, np.inf).argmin(axis=1)
    highest = np.where(finite, block, -np.inf).argmax(axis=1)
    rows = np.arange(stretches)
    kept = np.unique([0, len(values) - 1, *indices[rows, lowest], *indices[rows, highest]])
    return steps[kept], values[kept]
