"""Addition as a text, in one line: which digits belong together is not given.

Digits are least significant first, as in the published models with Abacus embeddings: `54+321=????` is 45 + 123, and
the answer is written over the places after the sign, of which there is one more than the longer number has digits.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from ._arithmetic import Addition
from ._problem import LineProblem


@dataclass(frozen=True)
class AdditionText(LineProblem):
    """The sum of two numbers of `size` digits, all in one line.

    >>> problem = AdditionText()
    >>> inputs = problem.parse("45+123")
    >>> inputs[:, 0].tolist()
    [6, 5, 11, 4, 3, 2, 12, 13, 13, 13, 13, 0]
    >>> problem.solve(inputs).tolist()
    [-1, -1, -1, -1, -1, -1, -1, 8, 6, 1, 0, -1]
    >>> problem.text(inputs, problem.solve(inputs))
    '45+123=168'
    """

    name: ClassVar[str] = "addition_text"
    base: int = 10
    hard: float = 0.0
    """Share of sums with long carries."""

    def __post_init__(self) -> None:
        _ = self.columns  # Its checks.

    @property
    def columns(self) -> Addition:
        """The same sums, digit below digit."""
        return Addition(self.base, self.hard)

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.base + 4,)

    @property
    def classes(self) -> int:
        return self.base

    @property
    def separators(self) -> tuple[int, ...]:
        return (0, self.base + 1, self.base + 2)

    def positions(self, size: int) -> tuple[int, ...]:
        return (3 * self.columns.positions(size)[0],)

    def size_of(self, inputs: Int[Any, "positions channels"]) -> int:
        return len(inputs) // 3 - 1

    def longest_number(self, size: int) -> int:
        return size + 1

    def sample(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        return self._line(self.columns.sample(key, count, least, size))

    def identity(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count values"]:
        return self.columns.identity(self._columns(inputs))

    def answers(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count positions"]:
        answers = self.columns.answers(self._columns(inputs))
        at = jnp.cumsum(inputs[..., 0] == self.base + 3, axis=1) - 1
        found = jnp.take_along_axis(answers, jnp.clip(at, 0, answers.shape[1] - 1), axis=1)
        return jnp.where(inputs[..., 0] == self.base + 3, found, -1)

    def text(
        self, inputs: Int[Any, "positions channels"], answer: Int[Any, " positions"] | None = None
    ) -> str:
        columns = np.asarray(self._columns(jnp.asarray(inputs)[None])[0])
        if answer is None:
            return self.columns.text(columns)
        asked = np.asarray(inputs)[:, 0] == self.base + 3
        places = np.zeros(len(columns), int)
        places[: asked.sum()] = np.asarray(answer)[asked]
        return self.columns.text(columns, places)

    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "positions channels"]:
        return np.array(self._line(jnp.asarray(self.columns.parse(text, size))[None])[0])

    def _line(self, columns: Int[Array, "count places 2"]) -> Int[Array, "count positions channels"]:
        count, places = columns.shape[:2]
        first, second = jnp.moveaxis(jnp.sum(columns > 0, axis=1, keepdims=True), -1, 0)
        at = jnp.arange(3 * places)
        equals = first + second + 1

        def digit(number: Array, where: Array) -> Array:
            return jnp.take_along_axis(number, jnp.clip(where, 0, places - 1), axis=1)

        where = jnp.broadcast_to(at, (count, 3 * places))
        line = jnp.where(at < first, digit(columns[..., 0], where), digit(columns[..., 1], where - first - 1))
        line = jnp.where(at == first, self.base + 1, jnp.where(at == equals, self.base + 2, line))
        asked = at <= equals + jnp.maximum(first, second) + 1
        line = jnp.where(at > equals, jnp.where(asked, self.base + 3, 0), line)
        return jnp.where(first > 0, line, 0)[..., None]

    def _columns(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count places 2"]:
        line, places = inputs[..., 0], inputs.shape[1] // 3
        plus = jnp.argmax(line == self.base + 1, axis=1, keepdims=True)
        equals = jnp.argmax(line == self.base + 2, axis=1, keepdims=True)
        at = jnp.arange(places)
        first = jnp.where(at < plus, line[:, :places], 0)
        second = jnp.take_along_axis(line, jnp.minimum(plus + 1 + at, line.shape[1] - 1), axis=1)
        return jnp.stack([first, jnp.where(at < equals - plus - 1, second, 0)], axis=-1)
