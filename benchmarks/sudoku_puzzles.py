"""Makes the puzzles of lapwing hard sudoku: `python benchmarks/sudoku_puzzles.py --parts FOLDER`.

Every puzzle begins as a random full grid of its own. Clues are removed in a random order while the solution stays
unique, several times, and the hardest result climbs: one to three clues are added, all that are not needed any more are
removed, and the result is kept if it needs at least as many guesses as before. It stops at the number of guesses that
it was given to reach. Guesses are counted by `lapwing.data.problems.solve_puzzles`.

No two puzzles of the set are the same under the symmetries of Sudoku, since they differ in a number that no symmetry
changes (`invariants`). So no test puzzle is a training puzzle in disguise.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from lapwing.data.problems import is_needed, solve_puzzles

TRAIN, TEST = 1000, 2000
PART = 1500
"""Puzzles that are made at once; some of them do not become hard enough."""
TRIES = 8
"""Puzzles of each grid of which the hardest climbs: they cost less than the steps that they save."""
LEAST, SPREAD = 10, 12
"""The guesses that a puzzle is to reach: at least 10, plus an exponentially distributed number with mean 12."""


def full_grid(rng: np.random.Generator) -> np.ndarray:
    """A random grid: the cell with the fewest candidates gets a random one, with backtracking."""
    rows, columns, boxes = ([0b111111111] * 9 for _ in range(3))
    grid = np.zeros(81, np.int64)

    def candidates(cell: int) -> int:
        row, column = divmod(cell, 9)
        return rows[row] & columns[column] & boxes[row // 3 * 3 + column // 3]

    def flip(cell: int, bit: int) -> None:
        row, column = divmod(cell, 9)
        for units, unit in ((rows, row), (columns, column), (boxes, row // 3 * 3 + column // 3)):
            units[unit] ^= bit

    def fill(empty: list[int]) -> bool:
        if not empty:
            return True
        cell = min(empty, key=lambda cell: candidates(cell).bit_count())
        others = [other for other in empty if other != cell]
        for digit in rng.permutation(9):
            bit = 1 << int(digit)
            if candidates(cell) & bit:
                flip(cell, bit)
                grid[cell] = digit + 1
                if fill(others):
                    return True
                flip(cell, bit)
        return False

    assert fill([int(cell) for cell in rng.permutation(81)])
    return grid


def dig(grids: np.ndarray, clues: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Removes every clue that is not needed for a unique solution, in a random order."""
    clues = clues.copy()
    order = np.where(clues, rng.random(clues.shape), 2).argsort(axis=1)
    for cell in order.T[: clues.sum(axis=1).max()]:
        (there,) = np.nonzero(clues[np.arange(len(clues)), cell])
        clues[there, cell[there]] = is_needed(grids[there] * clues[there], cell[there])
    return clues


def begin(grids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of several puzzles of each grid the one that needs the most guesses."""
    tries = [dig(grids, np.ones(grids.shape, bool), rng) for _ in range(TRIES)]
    best = np.argmax([solve_puzzles(grids * clues).guesses for clues in tries], axis=0)
    return np.array(tries)[best, np.arange(len(grids))]


def climb(
    grids: np.ndarray, clues: np.ndarray, goals: np.ndarray, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Exchanges clues, keeping what needs no fewer guesses, until a puzzle reaches its goal or the steps end."""
    clues, guesses = clues.copy(), solve_puzzles(grids * clues).guesses
    for _ in range(steps):
        (short,) = np.nonzero(guesses < goals)
        if not len(short):
            break
        more = rng.integers(1, 4, size=(len(short), 1))
        rank = np.where(clues[short], 2, rng.random((len(short), 81))).argsort(axis=1).argsort(axis=1)
        trial = dig(grids[short], clues[short] | (rank < more), rng)
        found = solve_puzzles(grids[short] * trial).guesses
        better = found >= guesses[short]
        clues[short[better]], guesses[short[better]] = trial[better], found[better]
    return clues, guesses


def invariants(grids: np.ndarray, clues: np.ndarray) -> list[int]:
    """A number for each puzzle that no symmetry changes: cells are labelled by hashes of how they relate to all others.

    Two cells share a row, a band or neither, a column, a stack or neither, and a digit or not. Rows and columns are
    not told apart, since a transposition exchanges them.
    """
    row, column = np.divmod(np.arange(81), 9)
    lines = [np.add(*(a[:, None] // n == a // n for n in (1, 3)), dtype=np.uint64) for a in (row, column)]
    lines = np.maximum(*lines) * np.uint64(3) + np.minimum(*lines)
    result = []
    for grid, clue in zip(grids, clues, strict=True):
        relation = mixed(lines * np.uint64(2) + (grid[:, None] == grid))
        label = clue.astype(np.uint64)
        for _ in range(4):
            label = mixed(label + mixed(relation + mixed(label)).sum(axis=1, dtype=np.uint64))
        result.append(int(mixed(label).sum(dtype=np.uint64)))
    return result


def mixed(bits: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64: each bit of the result depends on all bits."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def make_part(seed: int, part: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grids, clues and guesses of the puzzles of a part that need at least LEAST guesses."""
    rng = np.random.default_rng([seed, part])
    grids = np.array([full_grid(rng) for _ in range(PART)])
    clues = begin(grids, rng)
    goals = LEAST + rng.exponential(SPREAD, size=PART)
    clues, guesses = climb(grids, clues, goals, steps, rng)
    hard = guesses >= LEAST
    return grids[hard], clues[hard], guesses[hard]


def save(path: Path, grids: np.ndarray, clues: np.ndarray, guesses: np.ndarray) -> None:
    """Training puzzles, then test puzzles; a bit for each clue."""
    arrays = {}
    for split, rows in (("train", slice(0, TRAIN)), ("test", slice(TRAIN, TRAIN + TEST))):
        arrays[f"{split}_solutions"] = grids[rows].astype(np.uint8)
        arrays[f"{split}_clues"] = np.packbits(clues[rows], axis=1)
        arrays[f"{split}_guesses"] = guesses[rows].astype(np.uint16)
    np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the puzzles of lapwing hard sudoku.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=25, help="steps of the climb")
    parser.add_argument(
        "--parts", type=Path, required=True, help="folder of finished parts: a killed run resumes"
    )
    parser.add_argument("--out", type=Path, default=Path("src/lapwing/data/problems/lapwing_hard_sudoku.npz"))
    options = parser.parse_args()
    options.parts.mkdir(parents=True, exist_ok=True)
    puzzles: dict[int, tuple[np.ndarray, np.ndarray, int]] = {}
    part = 0
    while len(puzzles) < TRAIN + TEST:
        begin, file = time.perf_counter(), options.parts / f"{options.seed}-{options.steps}-{part}.npz"
        if not file.exists():
            made = make_part(options.seed, part, options.steps)
            np.savez_compressed(file, *made)
        grids, clues, guesses = np.load(file).values()
        for number, *puzzle in zip(invariants(grids, clues), grids, clues, guesses, strict=True):
            puzzles.setdefault(number, tuple(puzzle))
        print(f"part {part}: {len(puzzles)} puzzles, {time.perf_counter() - begin:.0f} s", flush=True)
        part += 1
    grids, clues, guesses = map(np.array, zip(*puzzles.values(), strict=True))
    save(options.out, grids, clues, guesses)
    for split, some in (("train", guesses[:TRAIN]), ("test", guesses[TRAIN:][:TEST])):
        quantiles = np.percentile(some, [0, 10, 25, 50, 75, 90, 99, 100]).astype(int).tolist()
        print(f"{split}: mean {some.mean():.1f}, 0/10/25/50/75/90/99/100%: {quantiles}")


if __name__ == "__main__":
    main()
