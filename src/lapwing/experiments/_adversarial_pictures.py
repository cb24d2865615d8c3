"""Pictures of a robustness: accuracy over eps, and attacked images with what was added to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lapwing.attacks import Share
from lapwing.core import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREY = "#2a7de1", "#d1453b", "#8b949e"
_ROWS = ("image", "added", "together")


@dataclass(frozen=True)
class Attacked:
    """Some images with the perturbation that was tried on each, and what is written above each column."""

    name: str
    images: np.ndarray
    attacked: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    titles: Sequence[str] = ()


def curve_figure(
    curve: Sequence[tuple[float, Share]],
    eps: float,
    bars: Sequence[tuple[str, Share]] = (),
    restarts: Sequence[Share] = (),
) -> "Figure":
    """Accuracy over eps, and beside it after each attack, or over restarts."""
    figure = new_figure(9, 3.6)
    over_eps, other = figure.subplots(1, 2, width_ratios=[2, 1])
    radii, shares = [radius for radius, _ in curve], [share for _, share in curve]
    over_eps.plot(radii, [share.accuracy for share in shares], "o-", color=_BLUE)
    low, high = zip(*(share.interval for share in shares), strict=True)
    over_eps.fill_between(radii, low, high, color=_BLUE, alpha=0.2, lw=0)
    over_eps.axvline(eps, color=_GREY, lw=1, ls=":")
    over_eps.set_ylabel("accuracy under attack")
    over_eps.set_xlabel("eps")
    if bars:
        _draw_bars(other, bars)
    else:
        after = [share.accuracy for share in restarts]
        other.plot(range(1, len(after) + 1), after, "o-" if len(after) < 20 else "-", color=_BLUE)
        other.set_xlabel("restarts")
    for axes in (over_eps, other):
        axes.set_ylim(0, 1)
        axes.grid(axis="y", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_bars(axes: "Axes", bars: Sequence[tuple[str, Share]]) -> None:
    shares = [share for _, share in bars]
    heights = np.array([share.accuracy for share in shares])
    ends = np.array([share.interval for share in shares]).T
    errors = np.maximum(np.abs(ends - heights), 0)
    axes.bar(range(len(bars)), heights, color=[_GREY] + [_BLUE] * (len(bars) - 1), width=0.6)
    axes.errorbar(range(len(bars)), heights, errors, fmt="none", ecolor="black", elinewidth=1, capsize=3)
    axes.set_xticks(range(len(bars)), [name for name, _ in bars], rotation=30, ha="right")


def image_figure(groups: Sequence[Attacked]) -> "Figure":
    """Three rows for each group: images, what was added, and both together with label → predicted class."""
    groups = [group for group in groups if len(group.labels)]
    columns = max((len(group.labels) for group in groups), default=1)
    figure = new_figure(1.1 * columns + 1.2, 3.9 * max(1, len(groups)))
    if not groups:
        return figure
    grid = np.asarray(figure.subplots(3 * len(groups), columns, squeeze=False))
    for number, group in enumerate(groups):
        _draw_group(grid[3 * number : 3 * number + 3], group)
    return figure


def _draw_group(grid: np.ndarray, group: Attacked) -> None:
    added = group.attacked - group.images
    largest = max(float(np.abs(added).max()), 1e-6)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    for row, (axes, images) in enumerate(zip(grid, (group.images, added, group.attacked), strict=True)):
        for place, image in zip(axes, images, strict=False):
            _draw_image(place, image, largest if row == 1 else None)
            place.set_frame_on(True)
        axes[0].set_ylabel(f"{group.name}\n{_ROWS[row]}" if row == 0 else _ROWS[row])
    for place, title in zip(grid[0], group.titles, strict=False):
        place.set_title(title, fontsize=8)
    for place, label, predicted in zip(grid[2], group.labels, group.predicted, strict=False):
        place.set_xlabel(f"{label} → {predicted}", color=_BLUE if label == predicted else _RED)


def _draw_image(axes: "Axes", image: np.ndarray, largest: float | None) -> None:
    """An image, or with `largest` a perturbation: grey, or white where there is one channel, means nothing added."""
    if image.shape[-1] == 3:
        axes.imshow(image if largest is None else 0.5 + image / (2 * largest))
    elif largest is None:
        axes.imshow(image[..., 0], vmin=0, vmax=1, cmap="gray")
    else:
        axes.imshow(image[..., 0], vmin=-largest, vmax=largest, cmap="RdBu")
