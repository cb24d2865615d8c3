"""Perfect mazes, drawn depth-first on the device: between any two rooms there is exactly one path, which is the answer.

A maze of size n is a field of n × n positions, n odd. Rooms are at even rows and columns, (n + 1) / 2 in each
direction; between two rooms is a passage or a wall. The wall around the maze is not part of the field. The published
mazes of Schwarzschild et al. (2021) count the same way: their 9×9 has 5 × 5 rooms, which they draw, with the wall
around them, on 11 × 11 squares of 2 × 2 pixels with a margin of one, 24 × 24 pixels; their 59×59 has 30 × 30 rooms. As
theirs, a maze is dug by the recursive backtracker beginning at its start, and the end is any other room.

The backtracker needs no stack: a room knows the one from which it was entered. Its choice among the free neighbours is
the one of highest priority, with priorities drawn beforehand; in a random order of its neighbours, the first one that
is free is as good as a random one of those that are free. So a maze of r rooms is a loop of 2r steps without random
numbers, and the way back from the end to the start, where the loop began, is the answer.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.data._sequences import Split, hash_of

from ._problem import Instances, Problem, ProblemError, check, first_found, is_of

WALL, OPEN, START, END = 1, 2, 3, 4
_SIGNS = " #.SE"
"""The sign of each token."""
_PATH = "*"


@dataclass(frozen=True)
class Maze(Problem):
    """The path from the start to the end of a maze: class 1 on the path, both ends included, and 0 elsewhere.

    >>> problem = Maze()
    >>> problem.draw(jax.random.key(0), 3, size=9).targets.shape
    (3, 9, 9)
    >>> inputs = problem.parse("S#E\\n.#.\\n...")
    >>> print(problem.text(inputs, problem.solve(inputs)))
    S#E
    *#*
    ***
    """

    name: ClassVar[str] = "maze"
    dimensions: ClassVar[int] = 2

    @property
    def tokens(self) -> tuple[int, ...]:
        return (len(_SIGNS),)

    @property
    def classes(self) -> int:
        return 2

    def positions(self, size: int) -> tuple[int, ...]:
        check("size", size, size >= 3 and size % 2 == 1, "odd, and at least 3")
        return (size, size)

    def twice(self, size: int) -> int:
        return 2 * size + 1  # Odd.

    def draw(
        self,
        key: Key[Array, ""],
        count: int,
        size: int,
        split: Split = "train",
        least: int | None = None,
    ) -> Instances:
        self.check_draw(count, size, split, least)
        most, fewest = (size + 1) // 2, ((least or size) + 1) // 2

        def attempt(key: Key[Array, ""]) -> tuple[tuple[Array, ...], Array]:
            return jax.vmap(lambda key: _attempt(key, fewest, most, split))(jax.random.split(key, count))

        (fields, parents, start, end), found = first_found(key, attempt)
        path = jax.vmap(_path, (0, 0, None))(parents, end, most)
        fields = jax.vmap(_mark, (0, 0, 0, None))(fields, start, end, most)
        targets = jnp.where(fields > 0, jax.vmap(_spread, (0, 0, None))(parents, path, most), -1)
        exists = found[:, None, None]
        return Instances(jnp.where(exists, fields, 0)[..., None], jnp.where(exists, targets, -1))

    def solve(self, inputs: Int[Any, "rows columns 1"]) -> Int[np.ndarray, "rows columns"]:
        """The shortest path, also in a maze that has several."""
        field = np.asarray(inputs)[..., 0]
        start, end = (tuple(np.argwhere(field == token)[0].tolist()) for token in (START, END))
        came_from = {start: start}
        waiting = deque([start])
        while waiting and end not in came_from:
            row, column = waiting.popleft()
            for other in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
                inside = 0 <= other[0] < len(field) and 0 <= other[1] < len(field)
                if inside and field[other] > WALL and other not in came_from:
                    came_from[other] = (row, column)
                    waiting.append(other)
        if end not in came_from:
            raise ProblemError("expected a maze with a path from S to E, but there is none")
        answer = np.where(field > 0, 0, -1)
        place = end
        while answer[place] == 0:
            answer[place] = 1
            place = came_from[place]
        return answer

    def text(self, inputs: Int[Any, "rows columns 1"], answer: Int[Any, "rows columns"] | None = None) -> str:
        field = np.asarray(inputs)[..., 0]
        path = np.zeros(field.shape, bool) if answer is None else np.asarray(answer) == 1
        size = np.count_nonzero(field[0])
        return "\n".join(
            "".join(
                _PATH if path[row, column] and field[row, column] not in (START, END) else _SIGNS[token]
                for column, token in enumerate(field[row, :size])
            )
            for row in range(size)
        )

    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "rows columns 1"]:
        """A maze as lines: # is a wall, . is open, S the start and E the end."""
        lines = text.split()
        own = len(lines)
        wrong = sorted(set("".join(lines)) - set(_SIGNS[1:]))
        if wrong:
            raise ProblemError(f"expected a maze of #, ., S and E, but found {wrong[0]!r}")
        if own < 3 or own % 2 == 0 or any(len(line) != own for line in lines):
            widths = sorted({len(line) for line in lines})
            raise ProblemError(
                "expected a square maze of an odd size from 3, without a wall around it, "
                f"but found {own} lines of {' and '.join(map(str, widths)) or 0} signs"
            )
        for sign, what in (("S", "start S"), ("E", "end E")):
            if (times := text.count(sign)) != 1:
                raise ProblemError(f"expected one {what}, but found {times}")
        if size is not None:
            check("the maze", f"of size {own}", own <= size, f"of size {size} at most")
        inputs = np.zeros((*self.positions(size or own), 1), np.int32)
        inputs[:own, :own, 0] = [[_SIGNS.index(sign) for sign in line] for line in lines]
        return inputs


# Rooms are numbered in a square with a border, which counts as visited, so that no step looks for the edge.


def _attempt(
    key: Key[Array, ""], fewest: int, most: int, split: Split
) -> tuple[tuple[Array, Array, Array, Array], Bool[Array, ""]]:
    """A maze with an end that makes it one of the split, if any end does: its field, how it was dug, start and end."""
    of_rooms, of_start, of_priorities, of_end = jax.random.split(key, 4)
    rooms = jax.random.randint(of_rooms, (), fewest, most + 1)
    start = jnp.sum((jax.random.randint(of_start, (2,), 0, rooms) + 1) * jnp.array([most + 2, 1]))
    inside = _inside(rooms, most)
    parents = _dig(start, inside, jax.random.uniform(of_priorities, ((most + 2) ** 2, 4)))
    field = _spread(parents, jnp.where(inside, OPEN, WALL), most, WALL)
    beyond = jnp.arange(2 * most - 1) >= 2 * rooms - 1
    field = jnp.where(beyond[:, None] | beyond, 0, field)
    # Start and end are hashed in their order in the field: exchanged, they have the same path.
    number = _shells(2 * most - 1)
    place = jnp.asarray(number[_places(most)])
    walls = (hash_of(field.ravel()[np.argsort(number)] - 1) >> 1).astype(jnp.int32)
    ends = jnp.stack([jnp.minimum(place, place[start]), jnp.maximum(place, place[start])], axis=-1)
    values = jnp.concatenate([jnp.broadcast_to(walls, (len(place), 1)), ends], axis=-1)
    wanted = is_of(split, values) & inside & (jnp.arange(len(place)) != start)
    end = jnp.argmax(jnp.where(wanted, jax.random.uniform(of_end, wanted.shape, minval=0.5), 0))
    return (field, parents, start, end), wanted[end]


def _dig(
    start: Int[Array, ""], inside: Bool[Array, " rooms"], priorities: Float[Array, "rooms 4"]
) -> Int[Array, " rooms"]:
    """The room from which each was entered; the start from itself."""
    width = int(len(inside) ** 0.5)
    steps = jnp.array([-width, 1, width, -1])

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        room, parents = state
        neighbours = room + steps
        free = parents[neighbours] < 0
        onward = jnp.any(free)
        chosen = neighbours[jnp.argmax(jnp.where(free, priorities[room], -1))]
        following = jnp.where(onward, chosen, parents[room])
        entered = jnp.where(onward, room, parents[following])
        return following, parents.at[following].set(entered)

    parents = jnp.where(inside, -1, 0).at[start].set(start)
    # Every room is entered and left once; then it stays at the start.
    _, parents = jax.lax.fori_loop(0, 2 * (width - 2) ** 2, step, (start, parents))
    return parents


def _path(parents: Int[Array, " rooms"], end: Int[Array, ""], most: int) -> Bool[Array, " rooms"]:
    """The rooms on the way back from the end to the start."""

    def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        room, path = state
        return parents[room], path.at[room].set(True)

    _, path = jax.lax.fori_loop(0, most**2, step, (end, jnp.zeros(len(parents), bool)))
    return path


def _spread(
    parents: Int[Array, " rooms"], values: Int[Array, " rooms"], most: int, between: int = 0
) -> Int[Array, "size size"]:
    """Values of rooms as a field: a passage has the smaller value of its two rooms, what is between rooms `between`."""
    number = jnp.arange((most + 2) ** 2).reshape(most + 2, -1)[1:-1, 1:-1]
    parents, values = (a.reshape(most + 2, -1)[1:-1, 1:-1] for a in (parents, values.astype(jnp.int32)))

    def passages(axis: int) -> Int[Array, "rows columns"]:
        (n, m), (p, q), (v, w) = (
            (jax.lax.slice_in_dim(a, 0, most - 1, axis=axis), jax.lax.slice_in_dim(a, 1, most, axis=axis))
            for a in (number, parents, values)
        )
        return jnp.where((p == m) | (q == n), jnp.minimum(v, w), between)

    field = jnp.full((2 * most - 1, 2 * most - 1), between, jnp.int32)
    field = field.at[::2, ::2].set(values)
    return field.at[1::2, ::2].set(passages(0)).at[::2, 1::2].set(passages(1))


def _mark(
    field: Int[Array, "size size"], start: Int[Array, ""], end: Int[Array, ""], most: int
) -> Int[Array, "size size"]:
    place = jnp.asarray(_places(most))
    return field.ravel().at[place[start]].set(START).at[place[end]].set(END).reshape(field.shape)


def _inside(rooms: Int[Array, ""], most: int) -> Bool[Array, " rooms"]:
    """The rooms of a maze of rooms × rooms, among those of the largest."""
    line = jnp.arange(-1, most + 1)
    line = (line >= 0) & (line < rooms)
    return (line[:, None] & line).ravel()


def _places(most: int) -> Int[np.ndarray, " rooms"]:
    """Where a room is in the field; 0 for the border."""
    places = np.zeros((most + 2, most + 2), np.int32)
    places[1:-1, 1:-1] = 2 * np.add.outer(np.arange(most) * (2 * most - 1), np.arange(most))
    return places.ravel()


def _shells(size: int) -> Int[np.ndarray, " places"]:
    """The number of each position when they are counted from the first corner outwards, one shell after the other.

    A small field is the beginning of a large one, so that its hash does not depend on the padding around it.

    >>> _shells(3).reshape(3, 3)
    array([[0, 1, 4],
           [2, 3, 5],
           [6, 7, 8]])
    """
    row, column = np.divmod(np.arange(size**2), size)
    order = np.lexsort((column, row, np.maximum(row, column)))
    number = np.empty_like(order)
    number[order] = np.arange(size**2)
    return number
