"""Common parts of the pictures of a run: light and dark colours, axes, smoothing."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.core import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, AMBER, GREY = "#2a7de1", "#e8833a", "#2e9e5b", "#d1453b", "#b8860b", "#8b949e"


def _settings(paper: str, ink: str, grid: str) -> dict[str, Any]:
    inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), paper),
        **dict.fromkeys(inked, ink),
        "axes.edgecolor": GREY,
        "grid.color": grid,
        "font.size": 11.0,
    }


LIGHT = _settings(paper="#ffffff", ink="#1f2933", grid="#e4e7eb")
DARK = _settings(paper="#161b22", ink="#e6edf3", grid="#2d333b")


def run_figure(width: float, height: float) -> "Figure":
    """A figure with some padding around its axes."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return new_figure(width, height, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))


def prepare(axes: "Axes", steps: np.ndarray, log: bool) -> None:
    """Styles axes over steps; call it after drawing."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if len(steps) and steps[-1] > steps[0]:
        axes.set_xlim(steps[0], steps[-1] + 0.01 * (steps[-1] - steps[0]))
    if log:
        _make_logarithmic(axes)


def is_log(values: np.ndarray) -> bool:
    """Whether a log axis can show these values: none is negative, and not all are zero.

    >>> is_log(np.array([0.0, 1.0, np.inf])), is_log(np.array([-1.0, 1.0])), is_log(np.array([np.nan]))
    (True, False, False)
    """
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and bool((finite >= 0).all() and finite.any())


def _make_logarithmic(axes: "Axes") -> None:
    """A log axis with plain numbers at its ticks, also where it spans less than one power of ten."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log", nonpositive="clip")  # A loss of zero is drawn below the axis.
    low, high = axes.get_ylim()
    if high > 4 * low:
        subs = (1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
    else:
        axes.yaxis.set_major_locator(AutoLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def smooth(values: np.ndarray, window: int, log: bool) -> np.ndarray:
    """The mean of the `window` values around each, fewer at the ends, without values that cannot be shown.

    On a log axis it is the mean of the logarithms, so that one large spike does not lift the curve.

    >>> smooth(np.array([1.0, 100.0, np.nan, 1.0]), 3, log=True).round(9).tolist()
    [10.0, 10.0, 10.0, 1.0]
    """
    shown = np.isfinite(values) & (values > 0) if log else np.isfinite(values)
    heights = np.where(shown, values, 1.0)
    heights = np.where(shown, np.log(heights) if log else heights, 0.0)
    sums, counts = (np.concatenate([[0], np.cumsum(each)]) for each in (heights, shown))
    middle = np.arange(len(values))
    first = np.maximum(middle - window // 2, 0)
    after = np.minimum(middle + (window - 1) // 2 + 1, len(values))
    count = counts[after] - counts[first]
    with np.errstate(invalid="ignore"):
        means = (sums[after] - sums[first]) / np.where(count > 0, count, np.nan)
    return np.exp(means) if log else means
