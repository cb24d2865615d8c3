"""The pictures of a run: loss, learning rate, norm of the gradient, other metrics, and the phases of a step.

Each curve is smoothed over all its points and then thinned to what a picture can show, with minima and maxima kept: a
run of a million steps takes as long to draw as one of a thousand, and no spike is lost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.core import plot_text, png_of
from lapwing.journal import Run, thin
from lapwing.timing import LapSummary, SummaryError

from ._drawing import AMBER, BLUE, DARK, GREEN, LIGHT, ORANGE, RED, is_log, prepare, run_figure, smooth
from ._laps import lap_figure
from ._marks import Mark, marks_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POINTS = 3000
MOST_MARKS = 500
MOST_MARK_LABELS = 12
MOST_OTHERS = 12
SIZE, HALF = (7.4, 3.8), (5.6, 3.6)
# Metrics with a picture of their own, and those that need none.
# Older runs logged the effective learning rate as `learning_rate`.
_RATES = ("effective_learning_rate", "learning_rate")
_DRAWN = {"loss", "eval_loss", *_RATES, "gradient_norm", "clipped_norm", "step", "time", "skipped"}


@dataclass(frozen=True)
class Picture:
    """A picture that can be drawn in light and in dark colours.

    >>> from matplotlib.figure import Figure
    >>> picture = Picture("loss", "The loss of every step", lambda: Figure((1, 1)))
    >>> picture.light[1:4], picture.light == picture.dark
    (b'PNG', False)
    """

    name: str
    caption: str
    make: Callable[[], "Figure"]

    @cached_property
    def light(self) -> bytes:
        """The content of a PNG file."""
        return png_of(self.make, LIGHT)

    @cached_property
    def dark(self) -> bytes:
        return png_of(self.make, DARK)


@dataclass(frozen=True)
class Line:
    """A metric: its raw values and a smoother line through them."""

    steps: np.ndarray
    values: np.ndarray
    window: int

    @classmethod
    def of(cls, run: Run, name: str) -> "Line":
        steps, values = run.curve(name)
        return cls(steps, values, max(1, len(values) // 40))

    def draw(self, axes: "Axes", color: str, label: str, log: bool, *, raw: bool = True) -> None:
        style: dict[str, Any] = {"label": label, "marker": ".", "markersize": 4}
        if self.window > 1:
            smoothed = smooth(self.values, self.window, log)
            axes.plot(
                *thin(self.steps, smoothed, MOST_POINTS), color=color, linewidth=2.0, label=label, zorder=3
            )
            style = {"alpha": 0.35}
        if raw or self.window == 1:
            broken = np.where(np.isfinite(self.values), self.values, np.nan)
            axes.plot(*thin(self.steps, broken, MOST_POINTS), color=color, linewidth=1.0, **style)


def run_pictures(run: Run) -> list[Picture]:
    """The pictures for the metrics of a run, each drawn when it is used.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(*({"step": step, "loss": 1 / (1 + step), "learning_rate": 0.1} for step in range(5)))
    >>> [(picture.name, picture.light[1:4]) for picture in run_pictures(run)]
    [('loss.png', b'PNG'), ('learning_rate.png', b'PNG')]
    """
    columns = run.columns()
    lines = {
        name: Line.of(run, name) for name in columns if "step" in columns and name not in ("step", "time")
    }
    marks = marks_of(run)
    others = {name: line for name, line in lines.items() if name not in _DRAWN and _is_drawable(line)}
    found = [
        _loss(lines, marks),
        _rate(lines, marks),
        _gradient(lines, marks),
        _others(others),
        _phases(run.laps),
    ]
    return [picture for picture in found if picture]


def _is_drawable(line: Line | None) -> bool:
    return line is not None and bool(np.isfinite(line.values).any())


def _loss(lines: Mapping[str, Line], marks: Sequence[Mark]) -> Picture | None:
    loss, evaluated = lines.get("loss"), lines.get("eval_loss")
    if loss is None or not _is_drawable(loss):
        return None
    log = is_log(loss.values)
    best = int(np.nanargmin(np.where(np.isfinite(loss.values), loss.values, np.nan)))
    at, lowest = int(loss.steps[best]), float(loss.values[best])

    def make() -> "Figure":
        figure, axes = _over_steps("loss", SIZE)
        loss.draw(axes, BLUE, _smoothed("loss", loss), log)
        if evaluated is not None:
            shown = thin(evaluated.steps, evaluated.values, MOST_POINTS)
            axes.plot(
                *shown, color=GREEN, marker="o", markersize=4, linewidth=1, label="evaluation", zorder=4
            )
        axes.plot(
            at, lowest, "o", color=AMBER, markersize=7, label=f"lowest: {lowest:.4g} at step {at}", zorder=5
        )
        _finish(figure, axes, loss.steps, marks, log)
        _mark_not_finite(axes, loss)
        return figure

    axis = "log" if log else "linear"
    return Picture("loss.png", f"The loss, on a {axis} axis; lowest {lowest:.4g} at step {at}", make)


def _rate(lines: Mapping[str, Line], marks: Sequence[Mark]) -> Picture | None:
    rate = next((lines[name] for name in _RATES if name in lines), None)
    if rate is None or not _is_drawable(rate):
        return None
    positive = rate.values[rate.values > 0]
    log = is_log(rate.values) and positive.max() > 100 * positive.min()

    def make() -> "Figure":
        figure, axes = _over_steps("effective learning rate", HALF)
        axes.plot(
            *thin(rate.steps, rate.values, MOST_POINTS), color=GREEN, linewidth=2.0, drawstyle="steps-post"
        )
        if not log:
            axes.set_ylim(0, 1.08 * max(np.nanmax(rate.values), 1e-30))
        _finish(figure, axes, rate.steps, marks, log)
        return figure

    return Picture("learning_rate.png", "The effective learning rate, with the factor of the schedule", make)


def _gradient(lines: Mapping[str, Line], marks: Sequence[Mark]) -> Picture | None:
    before, after = lines.get("gradient_norm"), lines.get("clipped_norm")
    if before is None or not _is_drawable(before):
        return None
    log = is_log(before.values)
    clipped = after is not None and not np.allclose(before.values, after.values, equal_nan=True)

    def make() -> "Figure":
        figure, axes = _over_steps("norm of the gradient", HALF)
        before.draw(axes, ORANGE, _smoothed("before clipping" if clipped else "never clipped", before), log)
        if after is not None and clipped:
            after.draw(axes, BLUE, "after clipping", log, raw=False)
        _finish(figure, axes, before.steps, marks, log)
        _mark_not_finite(axes, before)
        return figure

    return Picture("gradient.png", "The norm of the gradient, before and after clipping", make)


def _others(lines: Mapping[str, Line]) -> Picture | None:
    if not lines:
        return None
    shown = dict(list(lines.items())[:MOST_OTHERS])
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    steps = np.sort(np.concatenate([line.steps[[0, -1]] for line in shown.values()]))

    def make() -> "Figure":
        figure = run_figure(SIZE[0], 0.4 + 2.3 * rows)
        for place, (name, line) in enumerate(shown.items(), start=1):
            axes = figure.add_subplot(rows, columns, place)
            line.draw(axes, BLUE, plot_text(name), log=False)
            axes.set_title(plot_text(name), fontsize="medium", loc="left")
            prepare(axes, steps, log=False)
        return figure

    more = f"; {len(lines) - len(shown)} more are not drawn" if len(lines) > len(shown) else ""
    return Picture("metrics.png", f"Other metrics{more}", make)


def _phases(laps: Any) -> Picture | None:
    try:
        summary = LapSummary.from_json(laps)
    except SummaryError:
        return None
    if not summary.series.seconds:
        return None
    return Picture(
        "phases.png",
        "Where the time of a step goes, each phase timed separately",
        lambda: lap_figure(summary),
    )


def _over_steps(what: str, size: tuple[float, float]) -> tuple["Figure", "Axes"]:
    figure = run_figure(*size)
    axes = figure.add_subplot()
    axes.set_ylabel(what)
    axes.set_xlabel("step")
    return figure, axes


def _smoothed(name: str, line: Line) -> str:
    return f"{name}, mean of {line.window} steps" if line.window > 1 else name


def _finish(figure: "Figure", axes: "Axes", steps: np.ndarray, marks: Sequence[Mark], log: bool) -> None:
    prepare(axes, steps, log)
    for number, mark in enumerate(marks[-MOST_MARKS:]):
        axes.axvline(mark.step, color=mark.color, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
        if number < MOST_MARK_LABELS:
            # On the side of its line where there is room.
            side = "left" if mark.step < np.mean(axes.get_xlim()) / 5 else "right"
            style = {"rotation": 90, "ha": side, "va": "top", "fontsize": 9, "color": mark.color}
            axes.text(
                mark.step, 0.98, f"{plot_text(mark.text)} ", transform=axes.get_xaxis_transform(), **style
            )
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=10)


def _mark_not_finite(axes: "Axes", line: Line) -> None:
    """Draws crosses along the upper edge, at the steps whose value is not finite."""
    bad = line.steps[~np.isfinite(line.values)]
    if not len(bad):
        return
    shown = thin(bad, np.ones(len(bad)), 200)[0]
    style: dict[str, Any] = {"color": RED, "markersize": 7, "clip_on": False, "zorder": 6}
    axes.plot(shown, np.ones(len(shown)), "x", transform=axes.get_xaxis_transform(), **style)
    first = f"not finite at {len(bad)} step{'s' * (len(bad) != 1)}, first at {bad[0]}"
    axes.annotate(first, (1, 1.03), xycoords="axes fraction", ha="right", fontsize=9, color=RED)
