"""Sudoku: the set, its solver against a plain one, and the forms that are drawn."""

import functools

import jax
import numpy as np
import pytest

from benchmarks import sudoku_puzzles
from benchmarks.sudoku_puzzles import invariants
from lapwing.data.problems import Instances, ProblemError, Sudoku, is_needed, solve_puzzles
from tests.slow import some

EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
HARD = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
ROW, COLUMN = np.divmod(np.arange(81), 9)
BOX = ROW // 3 * 3 + COLUMN // 3
UNITS = [np.flatnonzero(unit == number).tolist() for unit in (ROW, COLUMN, BOX) for number in range(9)]


def cells(text: str) -> np.ndarray:
    return np.array([int(sign.replace(".", "0")) for sign in text])


@functools.cache
def drawn(split="train", count: int = 40, seed: int = 0) -> Instances:
    draw = jax.jit(lambda key: Sudoku().draw(key, count, 9, split))
    return Instances(*map(np.asarray, draw(jax.random.key(seed))))


def plain_solver(puzzle: list[int]) -> tuple[list[list[int]], int]:
    """All solutions and the number of guesses, a set of candidates at a time."""
    sets = [{digit} if digit else set(range(1, 10)) for digit in puzzle]
    changed = True
    while changed:
        changed = False
        for unit in UNITS:
            for cell in unit:
                single = {d for d in range(1, 10) if [c for c in unit if d in sets[c]] == [cell]}
                if len(single) > 1:
                    return [], 0
                known = set().union(
                    *(sets[other] for other in unit if other != cell and len(sets[other]) == 1)
                )
                left = (sets[cell] & single if single else sets[cell]) - known
                changed |= left != sets[cell]
                sets[cell] = left
            if set().union(*(sets[cell] for cell in unit)) != set(range(1, 10)):
                return [], 0
    if all(len(candidates) == 1 for candidates in sets):
        return [[min(candidates) for candidates in sets]], 0
    fewest = min((cell for cell in range(81) if len(sets[cell]) > 1), key=lambda cell: len(sets[cell]))
    solutions, guesses = [], 1
    for digit in sorted(sets[fewest]):
        decided = [min(c) if len(c) == 1 else 0 for c in sets]
        decided[fewest] = digit
        more, others = plain_solver(decided)
        solutions, guesses = solutions + more, guesses + others
    return solutions, guesses


def test_the_solver_is_as_good_as_a_plain_one():
    """Also in the guesses: what a solver concludes before it guesses does not depend on the order."""
    clues = Sudoku().puzzles("test").clues[:2].reshape(2, 81)
    for puzzle in [cells(EASY), cells(HARD), *clues]:
        solved = solve_puzzles(puzzle[None])
        (solution,), guesses = plain_solver(puzzle.tolist())
        assert solved.solution[0].tolist() == solution
        assert (solved.solutions[0], solved.guesses[0]) == (1, guesses)


def test_puzzles_without_and_with_many_solutions():
    impossible, several = cells("11" + "." * 79), cells(EASY[:60] + "." * 21)
    solved = solve_puzzles(np.array([impossible, several, cells(EASY), np.zeros(81, int)]))
    assert solved.solutions.tolist() == [0, 2, 1, 2]
    assert not solved.solution[0].any()
    for solution in solved.solution[1:]:
        assert all(sorted(solution[unit]) == list(range(1, 10)) for unit in UNITS)


@pytest.mark.parametrize(("split", "count"), some([("train", 1000), ("test", 2000)], 0))
def test_the_set(split, count: int):
    """Every puzzle has one solution, the one in the set, and needs as many guesses as the set says."""
    clues, solutions, guesses = Sudoku().puzzles(split)
    assert clues.shape == solutions.shape == (count, 9, 9)
    solved = solve_puzzles(clues.reshape(-1, 81))
    assert (solved.solutions == 1).all()
    assert (solved.solution.reshape(solutions.shape) == solutions).all()
    assert (solved.guesses == guesses).all()
    assert guesses.min() >= 10
    assert ((clues == 0) | (clues == solutions)).all()
    for unit in UNITS:
        assert (np.sort(solutions.reshape(-1, 81)[:, unit]) == np.arange(1, 10)).all()


def names(split) -> list[int]:
    clues, solutions, _ = (part.reshape(len(part), -1) for part in Sudoku().puzzles(split))
    return invariants(solutions, clues > 0)


@pytest.mark.slow
def test_no_two_puzzles_are_the_same_in_any_form():
    """An invariant that is the same in all forms of a puzzle is different for all puzzles."""
    train, test = names("train"), names("test")
    assert len({*train, *test}) == len(train) + len(test) == 3000
    for split, own, other in (("train", train, test), ("test", test, train)):
        inputs, targets = (part.reshape(len(part), 81) for part in drawn(split))
        forms = set(invariants(targets + 1, inputs > 1))
        assert forms <= set(own), "a form has the invariant of its puzzle"
        assert not forms & set(other)
        assert len(forms) > 30


def test_a_puzzle_with_another_clue_has_another_invariant():
    clues, solutions, _ = (part.reshape(len(part), -1)[:1] for part in Sudoku().puzzles("test"))
    given = clues > 0
    moved = given.copy()
    moved[0, [np.argmax(given[0]), np.argmin(given[0])]] ^= True
    assert invariants(solutions, given) != invariants(solutions, moved)


@pytest.mark.parametrize("split", some(["train", "test"], 1))
def test_what_is_drawn_is_a_puzzle_with_one_solution(split):
    inputs, targets = drawn(split)
    assert inputs.shape == (40, 9, 9, 1)
    solved = solve_puzzles(inputs.reshape(40, 81) - 1)
    assert (solved.solutions == 1).all()
    assert (solved.solution == targets.reshape(40, 81) + 1).all()
    assert set(np.unique(inputs)) == set(range(1, 11))


def test_forms_differ():
    inputs, targets = (part.reshape(-1, 81) for part in drawn(count=3000, seed=1))
    assert len(np.unique(inputs, axis=0)) == len(np.unique(targets, axis=0)) == 3000
    assert all(len(np.unique(column)) == 10 for column in inputs.T), "every token is everywhere"
    assert len(set(invariants(targets[:50] + 1, inputs[:50] > 1))) > 40


def test_rows_columns_and_boxes_hold_each_digit_once():
    solution = Sudoku().puzzles("train").solutions[0].ravel()
    for kind in Sudoku().groups(9):
        for number in range(9):
            assert sorted(solution[np.array(kind) == number]) == list(range(1, 10))


def test_the_checker():
    instances = Sudoku().instances("test")
    assert instances.inputs.shape == (2000, 9, 9, 1)
    answers = np.array(instances.targets)
    assert Sudoku().right(instances, answers).all()
    answers[7, 3, 3] = (answers[7, 3, 3] + 1) % 9
    assert np.flatnonzero(~Sudoku().right(instances, answers)).tolist() == [7]


def test_texts():
    problem = Sudoku()
    inputs = problem.parse(EASY)
    assert problem.text(inputs).startswith("53. .7. ...\n6.. 195 ...\n.98 ... .6.\n\n8.. .6. ..3")
    assert (problem.parse(problem.text(inputs), size=9) == inputs).all()
    assert (problem.parse("+---+\n" + EASY.replace(".", "0")) == inputs).all()
    assert problem.text(inputs, problem.solve(inputs)).startswith("534 678 912\n672 195 348")
    for one, targets in list(zip(*drawn(), strict=True))[:5]:
        assert (problem.parse(problem.text(one)) == one).all()
        assert (problem.solve(one) == targets).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sudoku().positions(16), "size should be 9, but is 16"),
        (lambda: Sudoku().parse("12"), "expected the 81 cells of a Sudoku, but found 2"),
        (
            lambda: Sudoku().parse("a" * 81),
            "expected digits from 1 to 9, and . for an empty cell, but found 'a'",
        ),
        (
            lambda: Sudoku().solve(Sudoku().parse("11" + "." * 79)),
            "expected a Sudoku with one solution, but it has none",
        ),
        (
            lambda: Sudoku().solve(Sudoku().parse("." * 81)),
            "expected a Sudoku with one solution, but it has more than one",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(call, message: str):
    with pytest.raises(ProblemError) as error:
        call()
    assert str(error.value) == message


@pytest.mark.slow
def test_many_keys_at_once_are_the_same_as_one_by_one():
    keys = jax.random.split(jax.random.key(1), 2)
    draw = jax.jit(lambda key: Sudoku().draw(key, 3, 9, "test"))
    together = jax.jit(jax.vmap(draw))(keys)
    for row, key in enumerate(keys):
        for many, alone in zip(together, draw(key), strict=True):
            assert (many[row] == alone).all()


@pytest.mark.slow
def test_the_search_for_hard_puzzles(monkeypatch):
    monkeypatch.setattr(sudoku_puzzles, "TRIES", 1)
    rng = np.random.default_rng(1)
    grids = np.array([sudoku_puzzles.full_grid(rng) for _ in range(8)])
    easy = sudoku_puzzles.begin(grids, rng)
    before = solve_puzzles(grids * easy).guesses
    hard, guesses = sudoku_puzzles.climb(grids, easy, before + 1, 3, rng)
    after = solve_puzzles(grids * hard)
    assert (after.solutions == 1).all()
    assert (after.guesses == guesses).all()
    assert (guesses >= before).all()
    assert guesses.sum() > before.sum()
    puzzle, place = np.nonzero(hard)
    assert is_needed((grids * hard)[puzzle], place).all()
    without = (grids * hard)[puzzle]
    without[np.arange(len(place)), place] = 0
    assert (solve_puzzles(without).solutions == 2).all(), "no clue can go"
