"""One frame of a film of thinking on a square: a maze with its path, a Sudoku with its digits."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Inputs = Int[np.ndarray, "rows columns channels"]
Answer = Int[np.ndarray, "rows columns"]

RIGHT, MISSING, TOO_MUCH = (59, 110, 165), (230, 200, 120), (200, 80, 60)
"""Found; asked for and not found; found and not asked for."""
GIVEN = (0, 0, 0)
WALL, START, END = 1, 3, 4
"""Tokens of a maze."""
EMPTY = 1
"""The token of an empty cell of a Sudoku."""


def maze_colors(inputs: Inputs, answer: Answer, solution: Answer) -> Float[np.ndarray, "rows columns 3"]:
    """Walls and ways in grey, and the path in colours."""
    grey = 255.0 * np.where(inputs[..., 0] == WALL, 0.15, 0.97)
    colors = np.repeat(grey[..., None], 3, axis=-1)
    colors[(solution > 0) & (answer != solution)] = MISSING
    colors[(answer > 0) & (answer != solution) & (solution >= 0)] = TOO_MUCH
    colors[(answer > 0) & (answer == solution)] = RIGHT
    return colors


def draw_maze(axes: "Axes", inputs: Inputs, answer: Answer, solution: Answer) -> None:
    """The path, from a circle at the start to a square at the end."""
    colors = maze_colors(inputs, answer, solution)
    axes.imshow(colors.astype(np.uint8), interpolation="nearest", aspect="auto")
    height = 72 * axes.bbox.height / axes.figure.dpi
    size = max(
        0.45 * height / len(answer), 7.0
    )  # In points: half of a position, but not too small to be seen.
    for token, marker in ((START, "o"), (END, "s")):
        row, column = np.argwhere(inputs[..., 0] == token)[0]
        axes.plot(column, row, marker, markersize=size, color="white", markeredgecolor="black")


def sudoku_digits(
    inputs: Inputs, answer: Answer, solution: Answer
) -> list[tuple[int, int, int, tuple[int, int, int]]]:
    """Row, column, digit and colour of each cell: given, found or wrong. A given one is what is given, whatever the
    answer there."""
    found = []
    for row, column in np.ndindex(answer.shape):
        given = inputs[row, column, 0] > EMPTY
        right = answer[row, column] == solution[row, column]
        digit = solution[row, column] if given else answer[row, column]
        found.append((row, column, int(digit) + 1, GIVEN if given else RIGHT if right else TOO_MUCH))
    return found


def draw_sudoku(axes: "Axes", inputs: Inputs, answer: Answer, solution: Answer) -> None:
    """Digits: given ones in black, found ones in blue, wrong ones in red."""
    axes.set(xlim=(-0.5, 8.5), ylim=(8.5, -0.5))
    for line in range(10):
        width = 2.0 if line % 3 == 0 else 0.5
        axes.axhline(line - 0.5, color="black", linewidth=width)
        axes.axvline(line - 0.5, color="black", linewidth=width)
    for row, column, digit, color in sudoku_digits(inputs, answer, solution):
        axes.text(
            column, row, str(digit), size=17, ha="center", va="center_baseline", color=np.divide(color, 255),
            weight="bold" if color == GIVEN else "normal",
        )  # fmt: skip


SQUARES: dict[str, Callable[["Axes", Inputs, Answer, Answer], None]] = {
    "maze": draw_maze,
    "sudoku": draw_sudoku,
}
"""How a frame is drawn, by the name of the problem."""
