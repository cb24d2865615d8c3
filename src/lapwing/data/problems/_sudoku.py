"""Hard Sudoku: puzzles of a fixed set, "lapwing hard sudoku", in a random one of their many equal forms.

The set has 1,000 puzzles for training and 2,000 for testing, each with one solution, found by a search for puzzles at
which a solver has to guess often (`benchmarks/sudoku_puzzles.py`); how often is part of the set. No two of its
puzzles are the same under the symmetries, so a test puzzle is never trained on, in whatever form.

The symmetries, drawn on the device: digits are renamed, rows change places within a band and columns within a stack,
bands and stacks change places, rows and columns are exchanged.
"""

import functools
import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from lapwing.data._sequences import Split

from ._problem import Instances, Problem, ProblemError, check
from ._sudoku_solver import solve_puzzles

EMPTY = 1
"""The token of an empty cell; a digit is EMPTY plus itself."""


class Puzzles(NamedTuple):
    """Puzzles, their solutions, and how hard they are."""

    clues: Int[np.ndarray, "puzzles 9 9"]
    """Digits from 1 to 9, and 0 for an empty cell."""
    solutions: Int[np.ndarray, "puzzles 9 9"]
    guesses: Int[np.ndarray, " puzzles"]
    """Times that `solve_puzzles` has to guess."""


@dataclass(frozen=True)
class Sudoku(Problem):
    """Hard 9×9 Sudoku. Every cell is asked for, clues too; class c is the digit c + 1.

    >>> problem = Sudoku()
    >>> problem.draw(jax.random.key(0), 3, size=9).targets.shape
    (3, 9, 9)
    >>> [len(problem.puzzles(split).guesses) for split in ("train", "test")]
    [1000, 2000]
    """

    name: ClassVar[str] = "sudoku"
    dimensions: ClassVar[int] = 2

    @property
    def tokens(self) -> tuple[int, ...]:
        return (EMPTY + 10,)

    @property
    def classes(self) -> int:
        return 9

    def positions(self, size: int) -> tuple[int, ...]:
        check("size", size, size == 9, "9")
        return (9, 9)

    def groups(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Rows, columns and boxes."""
        row, column = np.divmod(np.arange(math.prod(self.positions(size))), 9)
        return tuple(tuple(kind.tolist()) for kind in (row, column, row // 3 * 3 + column // 3))

    @property
    def given(self) -> int:
        return EMPTY + 1

    def twice(self, size: int) -> int:
        return size

    def puzzles(self, split: Split) -> Puzzles:
        """All puzzles of a split as they are in the set, on the host."""
        return _load()[split]

    def instances(self, split: Split) -> Instances:
        """All puzzles of a split as they are in the set: to evaluate on each once."""
        clues, solutions, _ = self.puzzles(split)
        return Instances(jnp.asarray(clues + EMPTY)[..., None], jnp.asarray(solutions - 1))

    def draw(
        self,
        key: Key[Array, ""],
        count: int,
        size: int = 9,
        split: Split = "train",
        least: int | None = None,
    ) -> Instances:
        """Draws puzzles of the split with replacement, each in a random form; it can be compiled and batched."""
        self.check_draw(count, size, split, least)
        inputs, targets = self.instances(split)
        of_puzzle, of_form = jax.random.split(key)
        chosen = jax.random.randint(of_puzzle, (count,), 0, len(inputs))
        clues, solutions = jax.vmap(_transformed)(
            jax.random.split(of_form, count), inputs[chosen, ..., 0], targets[chosen]
        )
        return Instances(clues[..., None], solutions)

    def solve(self, inputs: Int[Any, "9 9 1"]) -> Int[np.ndarray, "9 9"]:
        clues = np.maximum(np.asarray(inputs).reshape(1, 81) - EMPTY, 0)
        solved = solve_puzzles(clues)
        if solved.solutions[0] != 1:
            found = "none" if solved.solutions[0] == 0 else "more than one"
            raise ProblemError(f"expected a Sudoku with one solution, but it has {found}")
        return solved.solution[0].reshape(9, 9).astype(np.int32) - 1

    def text(self, inputs: Int[Any, "9 9 1"], answer: Int[Any, "9 9"] | None = None) -> str:
        clues = np.maximum(np.asarray(inputs)[..., 0] - EMPTY, 0)
        cells = clues if answer is None else np.where(clues > 0, clues, np.asarray(answer) + 1)
        lines = ["".join(".123456789"[digit] for digit in row) for row in cells]
        lines = [" ".join(line[stack : stack + 3] for stack in (0, 3, 6)) for line in lines]
        return "\n\n".join("\n".join(lines[band : band + 3]) for band in (0, 3, 6))

    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "9 9 1"]:
        """Reads 81 cells: digits, and . or 0 for an empty one. Spaces, line ends and |, - and + do not count."""
        signs = "".join(text.split()).translate(str.maketrans("", "", "|-+")).replace("0", ".")
        wrong = sorted(set(signs) - set(".123456789"))
        if wrong:
            raise ProblemError(
                f"expected digits from 1 to 9, and . for an empty cell, but found {wrong[0]!r}"
            )
        if len(signs) != 81:
            raise ProblemError(f"expected the 81 cells of a Sudoku, but found {len(signs)}")
        shape = self.positions(9 if size is None else size)
        cells = [".123456789".index(sign) for sign in signs]
        return np.array(cells, np.int32).reshape(*shape, 1) + EMPTY


@functools.cache
def _load() -> dict[Split, Puzzles]:
    with (
        (files("lapwing.data.problems") / "lapwing_hard_sudoku.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        return {split: _unpacked(arrays, split) for split in ("train", "test")}


def _unpacked(arrays: Any, split: Split) -> Puzzles:
    solutions = arrays[f"{split}_solutions"].astype(np.int32)
    clues = np.unpackbits(arrays[f"{split}_clues"], axis=1, count=81) * solutions
    return Puzzles(
        clues.reshape(-1, 9, 9), solutions.reshape(-1, 9, 9), arrays[f"{split}_guesses"].astype(np.int32)
    )


def _transformed(
    key: Key[Array, ""], inputs: Int[Array, "9 9"], targets: Int[Array, "9 9"]
) -> tuple[Int[Array, "9 9"], Int[Array, "9 9"]]:
    """A puzzle and its solution in a random one of their forms."""
    of_digits, of_lines, of_axes = jax.random.split(key, 3)
    digits = jnp.argsort(jax.random.uniform(of_digits, (9,)))
    rows, columns = _lines(of_lines)
    exchanged = jax.random.bernoulli(of_axes)

    def moved(cells: Int[Array, "9 9"]) -> Int[Array, "9 9"]:
        cells = cells[rows][:, columns]
        return jnp.where(exchanged, cells.T, cells)

    clues = jnp.where(inputs > EMPTY, digits[inputs - EMPTY - 1] + EMPTY + 1, inputs)
    return moved(clues), moved(digits[targets])


def _lines(key: Key[Array, ""]) -> tuple[Int[Array, " 9"], Int[Array, " 9"]]:
    """Rows and columns in random orders that keep bands and stacks together."""
    orders = jnp.argsort(jax.random.uniform(key, (2, 4, 3)))
    rows, columns = (3 * order[0][:, None] + order[1:] for order in orders)
    return rows.ravel(), columns.ravel()
