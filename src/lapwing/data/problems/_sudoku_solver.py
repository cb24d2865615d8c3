"""A Sudoku solver that solves many puzzles at once on the host, and counts the guesses that each needs.

A cell is a set of candidates, nine bits. Naked and hidden singles are applied until nothing changes; if cells are left,
the solver guesses: it branches on the first of the cells with the fewest candidates. All branches are searched, so that
a second solution would be found. The number of *guesses* is the number of times it had to branch: 0 for a puzzle
that singles solve. Where a puzzle has one solution, it does not depend on the order of the search; other forms of
the puzzle may need a few more or less, as another one of their cells comes first.

The last axis of all arrays is the puzzle, so that every operation of numpy runs over many puzzles.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt16

_ALL = np.uint16(0b111_111_111)
_FEWEST, _MOST = 512, 1024
"""Branches that are searched at once: enough for numpy to be fast, and so few that they fit into a cache."""

_UNITS = ((0, 1, 2, 3, 4), (2, 3, 0, 1, 4), (0, 2, 1, 3, 4))
"""Axes of a view, rows as bands of three and columns as stacks of three: the first two number the rows, columns or
boxes, the next two the cells of each."""

Cells = UInt16[np.ndarray, "9 9 branches"]
Branches = tuple[Cells, Int[np.ndarray, " branches"]]
"""Candidates, and the puzzle that each is a branch of."""


class Solved(NamedTuple):
    """What the solver found out about each puzzle."""

    solution: Int[np.ndarray, "puzzles 81"]
    """Digits from 1 to 9 of the first solution found; 0 where there is none."""
    solutions: Int[np.ndarray, " puzzles"]
    """0, 1, or 2 for two or more."""
    guesses: Int[np.ndarray, " puzzles"]
    """Times that the solver had to branch; until it found a second solution, if there is one."""


def solve_puzzles(clues: Int[np.ndarray, "puzzles 81"]) -> Solved:
    """Solves puzzles of digits from 1 to 9, with 0 for an empty cell.

    >>> puzzle = "53..7.... 6..195... .98....6. 8...6...3 4..8.3..1 7...2...6 .6....28. ...419..5 ....8..79"
    >>> digits = [int(c) if c != "." else 0 for c in puzzle if c != " "]
    >>> solved = solve_puzzles(np.array([digits]))
    >>> solved.solution[0, :9], int(solved.solutions[0]), int(solved.guesses[0])
    (array([5, 3, 4, 6, 7, 8, 9, 1, 2]), 1, 0)
    """
    return _search(_cells(clues), enough=2)


def is_needed(
    clues: Int[np.ndarray, "puzzles 81"], place: Int[np.ndarray, " puzzles"]
) -> Bool[np.ndarray, " puzzles"]:
    """Whether the clue at a place of a puzzle with one solution is needed to keep it the only one.

    It is if there is a solution with another digit at its place; this search is shorter than that of the puzzle
    without the clue, which finds the known solution too.

    >>> puzzle = np.array([[5, 3, 4, 6, 7, 8, 9, 1, 2] + [0] * 72])
    >>> bool(is_needed(puzzle, np.array([0]))[0])  # The rest of the row says what it is.
    False
    """
    clues, puzzle = np.asarray(clues, np.int64), np.arange(len(clues))
    without = clues.copy()
    without[puzzle, place] = 0
    cells = _cells(without)
    cells.reshape(81, -1)[place, puzzle] ^= (1 << (clues[puzzle, place] - 1)).astype(np.uint16)
    return _search(cells, enough=1).solutions > 0


def _cells(clues: Int[np.ndarray, "puzzles 81"]) -> Cells:
    bits = 1 << np.maximum(np.asarray(clues, np.int64) - 1, 0)
    bits = np.where(clues > 0, bits, int(_ALL)).astype(np.uint16)
    return np.ascontiguousarray(bits.T).reshape(9, 9, -1)


def _search(cells: Cells, enough: int) -> Solved:
    """Searches until every puzzle has enough solutions or no branches left."""
    count = cells.shape[-1]
    solution = np.zeros((count, 81), np.int64)
    solutions, guesses = np.zeros((2, count), np.int64)
    waiting: list[Branches] = [(cells, np.arange(count))]
    while waiting:
        cells, puzzle = _take(waiting)
        (live,) = np.nonzero(solutions[puzzle] < enough)
        cells, consistent = _propagate(cells.take(live, axis=-1))
        cells, puzzle = cells.take(consistent, axis=-1), puzzle[live][consistent]
        open_cells = (cells & (cells - 1)).any(axis=(0, 1))
        (done,), (stuck,) = np.nonzero(~open_cells), np.nonzero(open_cells)
        solution[puzzle[done]] = np.bitwise_count(cells[..., done] - 1).reshape(81, -1).T + 1
        np.add.at(solutions, puzzle[done], 1)
        np.add.at(guesses, puzzle[stuck], 1)
        if len(stuck):
            waiting += _branch(cells.take(stuck, axis=-1), puzzle[stuck])
    return Solved(solution, np.minimum(solutions, enough), guesses)


def _take(waiting: list[Branches]) -> Branches:
    """Some of the branches that were added last: depth first, so that few of them wait."""
    cells, puzzle = waiting.pop()
    while waiting and len(puzzle) < _FEWEST:
        more, others = waiting.pop()
        cells, puzzle = np.concatenate([more, cells], axis=-1), np.concatenate([others, puzzle])
    if len(puzzle) > _MOST:
        waiting.append((cells[..., :-_MOST], puzzle[:-_MOST]))
        cells, puzzle = cells[..., -_MOST:], puzzle[-_MOST:]
    return cells, puzzle


def _branch(cells: Cells, puzzle: np.ndarray) -> list[Branches]:
    """A branch for each candidate of the first of the cells with the fewest.

    The first candidates are last, so that they are searched first; where they lead to enough solutions, the
    others are not searched at all.
    """
    flat = cells.reshape(81, -1)
    left = np.bitwise_count(flat)
    place = np.argmin(np.where(left > 1, left, 10), axis=0)
    candidates = flat[place, np.arange(len(puzzle))]
    first = candidates & (~candidates + np.uint16(1))

    def chosen(branch: np.ndarray, candidate: np.ndarray) -> Branches:
        branches = flat[:, branch]
        branches[place[branch], np.arange(len(branch))] = candidate
        return branches.reshape(9, 9, -1), puzzle[branch]

    digit, branch = np.nonzero((candidates & ~first) & (1 << np.arange(9, dtype=np.uint16))[:, None])
    return [chosen(branch, 1 << digit), chosen(np.arange(len(puzzle)), first)]


def _propagate(cells: Cells) -> tuple[Cells, Int[np.ndarray, " consistent"]]:
    """Applies naked and hidden singles until nothing changes; which branches are not contradictory."""
    result, consistent = cells, np.ones(cells.shape[-1], bool)
    active = np.arange(cells.shape[-1])
    while len(active):
        after, good = _sweep(cells)
        (changed,) = np.nonzero(good & (after != cells).any(axis=(0, 1)))
        if len(active) == len(consistent):
            result = after
        else:
            result[..., active] = after
        consistent[active] = good
        # Branches that are at rest are left out.
        cells, active = after.take(changed, axis=-1), active[changed]
    return result, np.flatnonzero(consistent)


def _sweep(cells: Cells) -> tuple[Cells, np.ndarray]:
    """Applies naked, then hidden singles in all rows, columns and boxes; False where a cell or a digit has no place."""
    single = np.where(cells & (cells - 1), np.uint16(0), cells)
    taken, good = np.zeros_like(cells), np.ones(cells.shape[-1], bool)
    for axes in _UNITS:
        once, twice = _counted(_view(single, axes))
        good &= ~twice.any(axis=(0, 1))
        _view(taken, axes)[...] |= once[:, :, None, None]
    cells = np.where(single, single, cells & ~taken)
    hidden = np.zeros_like(cells)
    for axes in _UNITS:
        once, twice = _counted(_view(cells, axes))
        good &= (once == _ALL).all(axis=(0, 1))
        _view(hidden, axes)[...] |= (once & ~twice)[:, :, None, None]
    hidden &= cells
    good &= cells.all(axis=(0, 1))
    # A cell that two digits need is a contradiction: one of them has no place in the next sweep.
    return np.where(hidden, hidden & (~hidden + np.uint16(1)), cells), good


def _view(cells: Cells, axes: tuple[int, ...]) -> UInt16[np.ndarray, "3 3 3 3 branches"]:
    return cells.reshape(3, 3, 3, 3, -1).transpose(axes)


def _counted(units: UInt16[np.ndarray, "3 3 3 3 branches"]) -> tuple[np.ndarray, np.ndarray]:
    """The bits that any, and that more than one, of the nine cells of each unit have."""
    once, twice = units[:, :, 0, 0].copy(), np.zeros_like(units[:, :, 0, 0])
    for place in range(1, 9):
        cell = units[:, :, place // 3, place % 3]
        twice |= once & cell
        once |= cell
    return once, twice
