"""Problems on a string of digits: prefix sums, parity, sorting, reversal. Their size is the length of the string."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from ._numerals import read_digits, write_digits
from ._problem import LineProblem, check


@dataclass(frozen=True)
class _StringProblem(LineProblem, abc.ABC):
    base: int = 10

    def __post_init__(self) -> None:
        check("base", self.base, self.base >= 2, "at least 2")

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.base + 1,)

    @property
    def classes(self) -> int:
        return self.base

    def positions(self, size: int) -> tuple[int, ...]:
        check("size", size, size >= 1, "at least 1")
        return (size,)

    def sample(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        of_length, of_digits = jax.random.split(key)
        length = jax.random.randint(of_length, (count, 1), least, size + 1)
        digits = jax.random.randint(of_digits, (count, size), 0, self.base)
        return jnp.where(jnp.arange(size) < length, digits + 1, 0)[..., None]

    @abc.abstractmethod
    def classes_of(
        self, digits: Int[Array, "count positions"], length: Int[Array, "count 1"]
    ) -> Int[Array, "count positions"]:
        """The answers to strings that have -1 after their end; what is after the end does not matter."""

    def answers(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count positions"]:
        digits = inputs[..., 0] - 1
        length = jnp.sum(digits >= 0, axis=1, keepdims=True)
        return jnp.where(digits >= 0, self.classes_of(digits, length), -1)

    def text(
        self, inputs: Int[Any, "positions channels"], answer: Int[Any, " positions"] | None = None
    ) -> str:
        tokens = np.asarray(inputs)[:, 0]
        written = write_digits((tokens[tokens > 0] - 1).tolist(), self.base)
        if answer is None:
            return written
        asked = self.solve(inputs) >= 0
        return f"{written} → {write_digits(np.asarray(answer)[asked].tolist(), self.base)}"

    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "positions channels"]:
        digits = read_digits(text, self.base)
        if size is not None:
            check("the string", f"of {len(digits)}", len(digits) <= size, f"of at most {size} digits")
        inputs = np.zeros((*self.positions(size or len(digits)), 1), np.int32)
        inputs[: len(digits), 0] = np.add(digits, 1)
        return inputs


@dataclass(frozen=True)
class PrefixSums(_StringProblem):
    """The parity of the bits so far, at each position of a string of bits.

    >>> problem = PrefixSums()
    >>> problem.draw(jax.random.key(0), 3, size=32).targets.shape
    (3, 32)
    >>> problem.text(problem.parse("1011"), problem.solve(problem.parse("1011")))
    '1011 → 1101'
    """

    name: ClassVar[str] = "prefix_sums"
    base: int = 2
    """2: bits and their parity. In another base: digits, and their sums modulo the base."""

    def classes_of(
        self, digits: Int[Array, "count positions"], length: Int[Array, "count 1"]
    ) -> Int[Array, "count positions"]:
        return jnp.cumsum(digits, axis=1) % self.base


@dataclass(frozen=True)
class Parity(PrefixSums):
    """The parity of a string of bits, asked for at its last position only.

    >>> problem = Parity()
    >>> problem.solve(problem.parse("1011")).tolist()
    [-1, -1, -1, 1]
    """

    name: ClassVar[str] = "parity"

    def classes_of(
        self, digits: Int[Array, "count positions"], length: Int[Array, "count 1"]
    ) -> Int[Array, "count positions"]:
        last = jnp.arange(digits.shape[1]) == length - 1
        return jnp.where(last, super().classes_of(digits, length), -1)


@dataclass(frozen=True)
class Sorting(_StringProblem):
    """The digits of a string, the smallest first.

    >>> problem = Sorting()
    >>> problem.text(problem.parse("31415"), problem.solve(problem.parse("31415")))
    '31415 → 11345'
    """

    name: ClassVar[str] = "sorting"

    def classes_of(
        self, digits: Int[Array, "count positions"], length: Int[Array, "count 1"]
    ) -> Int[Array, "count positions"]:
        return jnp.sort(jnp.where(digits >= 0, digits, self.base), axis=1)


@dataclass(frozen=True)
class Reversal(_StringProblem):
    """The digits of a string, the last first.

    >>> problem = Reversal()
    >>> problem.text(problem.parse("31415"), problem.solve(problem.parse("31415")))
    '31415 → 51413'
    """

    name: ClassVar[str] = "reversal"

    def classes_of(
        self, digits: Int[Array, "count positions"], length: Int[Array, "count 1"]
    ) -> Int[Array, "count positions"]:
        place = length - 1 - jnp.arange(digits.shape[1])
        return jnp.take_along_axis(digits, jnp.maximum(place, 0), axis=1)
