"""Mazes: what is drawn, against a breadth-first search written again here."""

import functools
import random

import jax
import numpy as np
import pytest

from lapwing.data.problems import Instances, Maze, ProblemError
from tests.slow import some

WALL, OPEN, START, END = 1, 2, 3, 4


@functools.cache
def drawn(seed: int = 0, count: int = 200, size: int = 9, split="train", least=None) -> Instances:
    draw = jax.jit(lambda key: Maze().draw(key, count, size, split, least))
    return Instances(*map(np.asarray, draw(jax.random.key(seed))))


def distances(field: np.ndarray, begin: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Breadth first: how far every position is that can be reached."""
    found, shell = {begin: 0}, [begin]
    while shell:
        shell = [
            (row + down, column + right)
            for row, column in shell
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if 0 <= row + down < len(field) and 0 <= column + right < len(field)
            if field[row + down, column + right] in (OPEN, START, END)
            if (row + down, column + right) not in found
        ]
        shell = sorted(set(shell))
        found |= dict.fromkeys(shell, max(found.values()) + 1)
    return found


def size_of(field: np.ndarray) -> int:
    size = int(np.count_nonzero(field[0]))
    assert (field[:size, :size] > 0).all()
    assert np.count_nonzero(field) == size**2, "a maze is a square, and the rest is padding"
    return size


@pytest.mark.parametrize(
    ("size", "least", "split"),
    some(
        [
            (9, 3, "test"),
            (59, None, "test"),
            *(pytest.param(size, None, "train", marks=pytest.mark.slow) for size in (3, 9)),
        ],
        0,
    ),
)
def test_the_one_path_is_the_answer(size: int, least, split):
    instances = drawn(count=4 if size == 59 else 200, size=size, least=least, split=split)
    assert instances.inputs.shape[1:] == (size, size, 1)
    for field, targets in zip(instances.inputs[..., 0], instances.targets, strict=True):
        own = size_of(field)
        ((start,), (end,)) = (list(zip(*np.nonzero(field == token), strict=True)) for token in (START, END))
        from_start, from_end = distances(field, start), distances(field, end)
        passable = np.count_nonzero(field > WALL)
        assert len(from_start) == passable, "every open position can be reached"
        rooms = ((own + 1) // 2) ** 2
        assert (field[:own:2, :own:2] > WALL).all()
        assert passable == 2 * rooms - 1, "a tree has one passage less than rooms: no loops"
        on_path = {place for place in from_start if from_start[place] + from_end[place] == from_start[end]}
        expected = np.where(field > 0, 0, -1)
        expected[tuple(zip(*on_path, strict=True))] = 1
        assert (targets == expected).all()


def test_sizes_are_drawn_from_least():
    sizes = [size_of(field) for field in drawn(size=9, least=3, split="test").inputs[..., 0]]
    assert set(sizes) == {3, 5, 7, 9}


@pytest.mark.slow
def test_start_and_end_are_anywhere_and_mazes_differ():
    fields = drawn().inputs[..., 0]
    for token in (START, END):
        assert len({tuple(place) for _, *place in np.argwhere(fields == token)}) == 25
    assert len(np.unique(fields > WALL, axis=0)) > 190


def backtracker(rng: random.Random, rooms: int) -> np.ndarray:
    """The same kind of maze in plain Python: begins at the start, with a stack, and ends anywhere else."""
    field = np.full((2 * rooms - 1, 2 * rooms - 1), WALL)
    start = (2 * rng.randrange(rooms), 2 * rng.randrange(rooms))
    field[start] = START
    stack = [start]
    while stack:
        row, column = stack[-1]
        ways = [
            (down, right)
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if 0 <= row + 2 * down < len(field) and 0 <= column + 2 * right < len(field)
            if field[row + 2 * down, column + 2 * right] == WALL
        ]
        if not ways:
            stack.pop()
            continue
        down, right = rng.choice(ways)
        field[row + down, column + right] = field[row + 2 * down, column + 2 * right] = OPEN
        stack.append((row + 2 * down, column + 2 * right))
    end = rng.choice(
        [place for place in np.ndindex(field.shape) if not any(np.mod(place, 2)) and place != start]
    )
    field[end] = END
    return field


@pytest.mark.slow
def test_mazes_are_as_likely_as_those_of_a_plain_backtracker():
    def measured(field: np.ndarray) -> tuple[int, int]:
        """The length of the path, and dead ends."""
        ((start,), (end,)) = (list(zip(*np.nonzero(field == token), strict=True)) for token in (START, END))
        around = np.pad(field, 1) > WALL
        ways = sum(np.roll(around, shift, axis).astype(int) for axis in (0, 1) for shift in (1, -1))
        return distances(field, start)[end], np.count_nonzero((ways == 1) & around)

    rng = random.Random(0)
    plain = np.array([measured(backtracker(rng, 5)) for _ in range(600)])
    ours = np.array([measured(field) for field in drawn(count=600).inputs[..., 0]])
    error = np.sqrt((plain.var(axis=0) + ours.var(axis=0)) / 600)
    assert (np.abs(plain.mean(axis=0) - ours.mean(axis=0)) < 3 * error).all()


@pytest.mark.slow
def test_what_is_tested_is_never_trained_on():
    """Small mazes, so that most that exist are drawn; in fields of two sizes, and with start and end exchanged too."""
    seen = {}
    for split in ("train", "test"):
        parts = [drawn(count=1000, size=3, split=split), drawn(count=5000, size=5, least=3, split=split)]
        fields = [np.where(field == END, START, field) for part in parts for field in part.inputs[..., 0]]
        seen[split] = {field[:size, :size].tobytes() for field in fields if (size := size_of(field))}
    small = {split: sum(len(field) == 9 * 4 for field in found) for split, found in seen.items()}
    assert small["train"] + small["test"] == 20, (
        "of 4 trees, the 5 pairs of rooms with an end of the tree among them"
    )
    assert small["train"] > small["test"] > 0
    assert not seen["train"] & seen["test"]


def test_the_checker():
    instances = drawn()
    assert Maze().right(instances, instances.targets).all()
    wrong = instances.targets.copy()
    wrong[0, 4, 4] = 1 - wrong[0, 4, 4]
    assert Maze().right(instances, wrong).tolist() == [False] + [True] * (len(wrong) - 1)
    assert not Maze().right(instances, np.zeros_like(wrong)).any()


def test_texts_are_read_back_and_solved():
    problem = Maze()
    instances = drawn(size=9, least=3, split="test")
    for one, targets in list(zip(*instances, strict=True))[:20]:
        text = problem.text(one)
        assert len(text.split("\n")) == size_of(one[..., 0])
        assert (problem.parse(text, size=9) == one).all()
        assert (problem.solve(one) == targets).all()
        assert problem.text(problem.parse(text)) == text


def test_a_maze_with_two_paths_is_solved_by_the_shortest():
    problem = Maze()
    inputs = problem.parse("S....\n.###.\n.#E#.\n.#.#.\n.....")
    assert problem.text(inputs, problem.solve(inputs)) == "S....\n*###.\n*#E#.\n*#*#.\n***.."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drawn(size=8), "size should be odd, and at least 3, but is 8"),
        (lambda: drawn(size=9, least=4), "size should be odd, and at least 3, but is 4"),
        (lambda: Maze().parse("S.x\n...\n..E"), "expected a maze of #, ., S and E, but found 'x'"),
        (
            lambda: Maze().parse("S.\n.E"),
            "expected a square maze of an odd size from 3, without a wall around it, "
            "but found 2 lines of 2 signs",
        ),
        (lambda: Maze().parse("S..\n...\n..S"), "expected one start S, but found 2"),
        (lambda: Maze().parse("S..\n...\n..."), "expected one end E, but found 0"),
        (
            lambda: Maze().parse("S..\n...\n..E", size=1),
            "the maze should be of size 1 at most, but is of size 3",
        ),
        (
            lambda: Maze().solve(Maze().parse("S#.\n###\n..E")),
            "expected a maze with a path from S to E, but there is none",
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
    together = jax.jit(jax.vmap(lambda key: Maze().draw(key, 3, 5, "test")))(keys)
    one = jax.jit(lambda key: Maze().draw(key, 3, 5, "test"))
    for row, key in enumerate(keys):
        for many, alone in zip(together, one(key), strict=True):
            assert (many[row] == alone).all()
