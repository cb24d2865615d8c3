"""A film of thinking: the answer at every position after each step, and where it is right.

On a line, time runs down one picture. On a square it is an animation.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from lapwing.core import new_figure, png_of
from lapwing.data.problems import Problem
from lapwing.models import Looped

from ._thinker_answer import answers_over_steps
from ._thinker_squares import SQUARES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FRAMES = 80
SIDE, DPI, PAUSE = 420, 100, 16
"""Of an animation: pixels of a side, and frames at its end."""


def film_files(
    problem: Problem, model: Looped, inputs: Int[np.ndarray, "*positions channels"], steps: int
) -> dict[str, bytes]:
    """The film of one problem, as a file for the folder of a run."""
    answers, _ = answers_over_steps(model, jnp.asarray(inputs)[None], steps)
    solution = problem.solve(inputs)
    if problem.dimensions == 1:
        return {"film.png": png_of(lambda: draw_line(problem, inputs, answers, solution), dpi=130)}
    frames, draw = answers[shown_steps(answers, solution)], SQUARES[problem.name]
    return {"film.gif": animation(lambda axes, at: draw(axes, inputs, frames[at], solution), len(frames))}


def shown_steps(
    answers: Int[np.ndarray, " steps *positions"], solution: Int[np.ndarray, " *positions"]
) -> list[int]:
    """The steps up to the last change of what is asked, thinned out to a number of frames."""
    asked = solution >= 0
    changes = np.flatnonzero(np.any((answers[1:] != answers[:-1])[:, asked], axis=1))
    last = int(changes[-1]) + 1 if changes.size else 0
    return sorted({round(at) for at in np.linspace(0, last, min(last + 1, MOST_FRAMES))})


def animation(draw: Callable[["Axes", int], None], count: int) -> bytes:
    """A GIF of frames, each drawn on empty axes, that pauses at its end."""
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure = new_figure(SIDE / DPI, SIDE / DPI)
    figure.set_layout_engine("none")  # The picture fills it.
    axes = figure.add_axes((0, 0, 1, 1))

    def show(at: int) -> tuple[Any, ...]:
        axes.clear()
        axes.set_axis_off()
        draw(axes, min(at, count - 1))
        return (axes,)

    film = FuncAnimation(figure, show, frames=count + PAUSE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        film.save(path, writer=PillowWriter(fps=8), dpi=DPI)
        return path.read_bytes()


def draw_line(
    problem: Problem,
    inputs: Int[np.ndarray, "positions channels"],
    answers: Int[np.ndarray, "steps positions"],
    solution: Int[np.ndarray, " positions"],
) -> "Figure":
    """Time runs down: the class at each position, and dark where it is wrong."""
    steps = max(shown_steps(answers, solution)[-1] + 6, 12)
    shown = answers[:steps]
    figure = new_figure(max(5.0, min(12.0, 0.14 * len(solution))), max(3.0, min(9.0, 0.08 * steps)))
    axes = figure.subplots()
    classes = np.where(solution >= 0, shown, np.nan)
    axes.imshow(
        classes, aspect="auto", cmap="viridis", vmin=0, vmax=problem.classes - 1, interpolation="nearest"
    )
    wrong = np.where((shown != solution) & (solution >= 0), 1.0, np.nan)
    axes.imshow(wrong, aspect="auto", cmap="Reds", vmin=0, vmax=1.3, alpha=0.75, interpolation="nearest")
    axes.set(xlabel="position", ylabel="thinking step")
    text = problem.text(inputs)
    axes.set_title(
        f"{text if len(text) < 60 else text[:57] + '…'}: the answer after each step, red where wrong", size=9
    )
    return figure
