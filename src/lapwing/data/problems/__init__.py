"""Problems of any size, drawn on the device: arithmetic and strings on a line, mazes and Sudoku on a square.

Each has a generator, a checker, and a size that is its difficulty. See docs/problems.md.
"""

from ._addition_text import AdditionText
from ._arithmetic import Addition, Multiplication
from ._maze import Maze
from ._problem import Instances, Problem, ProblemError
from ._strings import Parity, PrefixSums, Reversal, Sorting
from ._sudoku import Puzzles, Sudoku
from ._sudoku_solver import Solved, is_needed, solve_puzzles

PROBLEMS: dict[str, type[Problem]] = {
    kind.name: kind
    for kind in (Addition, AdditionText, Multiplication, PrefixSums, Parity, Sorting, Reversal, Maze, Sudoku)
}
"""All problems by name."""

__all__ = [
    "PROBLEMS",
    "Addition",
    "AdditionText",
    "Instances",
    "Maze",
    "Multiplication",
    "Parity",
    "PrefixSums",
    "Problem",
    "ProblemError",
    "Puzzles",
    "Reversal",
    "Solved",
    "Sorting",
    "Sudoku",
    "is_needed",
    "solve_puzzles",
]
