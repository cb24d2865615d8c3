"""Addition and multiplication in any base, with as many digits as you like.

The numbers are written least significant digit first and aligned in columns: a position holds a digit of each number.
An answer has all its places, with zeros at its end: one more than the longer number for a sum, as many as both
together for a product.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from ._numerals import read_digits, write_digits
from ._problem import LineProblem, ProblemError, check


@dataclass(frozen=True)
class _Arithmetic(LineProblem):
    """Two numbers. All have `size` digits; with `least`, the length of each is drawn. None begins with a zero."""

    base: int = 10
    sign: ClassVar[str]

    def __post_init__(self) -> None:
        check("base", self.base, 2 <= self.base <= 2**14, "from 2 to 2^14")

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.base + 1, self.base + 1)

    @property
    def classes(self) -> int:
        return self.base

    def sample(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        of_length, of_digits, of_first = jax.random.split(key, 3)
        length = jax.random.randint(of_length, (count, 1, 2), least, size + 1)
        place = jnp.arange(self.positions(size)[0])[:, None]
        digits = jax.random.randint(of_digits, (count, len(place), 2), 0, self.base)
        first = jax.random.randint(of_first, (count, 1, 2), 1, self.base)
        digits = jnp.where((place == length - 1) & (length > 1), first, digits)
        return jnp.where(place < length, digits + 1, 0)

    def identity(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count values"]:
        # Sorted, so that a+b and b+a are one problem; column by column, as two long numbers have no number to compare.
        return jnp.sort(inputs - 1, axis=-1).reshape(len(inputs), -1)

    def text(
        self, inputs: Int[Any, "positions channels"], answer: Int[Any, " positions"] | None = None
    ) -> str:
        columns = np.asarray(inputs)
        numbers = [column[column > 0] - 1 for column in columns.T]
        written = self.sign.join(self._written(number) for number in numbers)
        if answer is None:
            return written
        return f"{written}={self._written(np.asarray(answer)[self.solve(columns) >= 0])}"

    def _written(self, digits: Int[np.ndarray, " places"]) -> str:
        largest = max(np.flatnonzero(digits), default=0)
        return write_digits(digits[largest::-1].tolist(), self.base)

    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "positions channels"]:
        numbers = text.replace("×", "*").split(self.sign)
        if len(numbers) != 2:
            raise ProblemError(f"expected two numbers with {self.sign} between them, but found {text!r}")
        digits = [read_digits(number, self.base)[::-1] for number in numbers]
        for number in digits:
            while len(number) > 1 and number[-1] == 0:
                number.pop()
        longest = max(map(len, digits))
        if size is not None:
            check("the longest number", f"of {longest}", longest <= size, f"of at most {size} digits")
        inputs = np.zeros((*self.positions(size or longest), 2), np.int32)
        for channel, number in enumerate(digits):
            inputs[: len(number), channel] = np.add(number, 1)
        return inputs


@dataclass(frozen=True)
class Addition(_Arithmetic):
    """The sum of two numbers of `size` digits.

    >>> problem = Addition()
    >>> instances = problem.draw(jax.random.key(0), 3, size=20)
    >>> instances.inputs.shape, instances.targets.shape
    ((3, 21, 2), (3, 21))
    >>> inputs = problem.parse("95+39")
    >>> problem.text(inputs, problem.solve(inputs))
    '95+39=134'
    """

    name: ClassVar[str] = "addition"
    sign: ClassVar[str] = "+"
    hard: float = 0.0
    """Share of sums with long carries, such as 99999+1; those of random digits are short, however long the sum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check("hard", self.hard, 0 <= self.hard <= 1, "from 0 to 1")

    def sample(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        if self.hard == 0:
            return super().sample(key, count, least, size)
        of_random, of_hard, of_share = jax.random.split(key, 3)
        random = super().sample(of_random, count, least, size)
        is_hard = jax.random.uniform(of_share, (count, 1, 1)) < self.hard
        return jnp.where(is_hard, self._long_carries(of_hard, count, least, size), random)

    def _long_carries(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        """Sums in which a carry begins at the first place and all others pass it on, except for a few random ones.

        The longer number has from `least` to `size` digits, the other one, as many, or any number in between.
        """
        of_length, of_kind, of_between, of_digits, of_rate, of_breaks, of_order = jax.random.split(key, 7)
        longer = jax.random.randint(of_length, (count, 1), least, size + 1)
        between = jax.random.randint(of_between, (count, 1), 1, longer + 1)
        kind = jax.random.randint(of_kind, (count, 1), 0, 3)
        shorter = jnp.where(kind == 0, 1, jnp.where(kind == 1, between, longer))
        place, last = jnp.arange(self.positions(size)[0]), self.base - 1
        begins, top, shorter_top = place == 0, place == longer - 1, place == shorter - 1
        # In about a third of the sums, no place is random. No number begins with a zero, so two of one length end so.
        rate = jax.random.uniform(of_rate, (count, 1), maxval=3.0) / longer
        random = jax.random.uniform(of_breaks, (count, len(place))) < rate
        random |= top & shorter_top & ~begins
        a, b = jax.random.randint(of_digits, (2, count, len(place)), 0, self.base)
        # The digits of a place that passes a carry on have the sum base - 1.
        passing = jnp.where(place < shorter, jnp.minimum(a, last - shorter_top), last)
        a = jnp.where(random, jnp.maximum(a, top), jnp.where(begins, jnp.maximum(a, 1), passing))
        b = jnp.where(random, jnp.maximum(b, shorter_top), last - a + begins)
        both = jnp.stack([jnp.where(place < longer, a + 1, 0), jnp.where(place < shorter, b + 1, 0)], axis=-1)
        exchanged = jax.random.bernoulli(of_order, shape=(count, 1, 1))
        return jnp.where(exchanged, both[..., ::-1], both)

    def positions(self, size: int) -> tuple[int, ...]:
        check("size", size, size >= 1, "at least 1")
        return (size + 1,)

    def answers(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count positions"]:
        digits = jnp.maximum(inputs - 1, 0)
        longest = jnp.max(jnp.sum(inputs > 0, axis=1), axis=-1, keepdims=True)
        asked = (jnp.arange(inputs.shape[1]) <= longest) & (longest > 0)
        return jnp.where(asked, carry(jnp.sum(digits, axis=-1), self.base), -1)


@dataclass(frozen=True)
class Multiplication(_Arithmetic):
    """The product of two numbers of `size` digits.

    >>> problem = Multiplication(base=16)
    >>> problem.draw(jax.random.key(0), 3, size=4).targets.shape
    (3, 8)
    >>> inputs = problem.parse("ff*ff")
    >>> problem.text(inputs, problem.solve(inputs))
    'ff*ff=fe01'
    """

    name: ClassVar[str] = "multiplication"
    sign: ClassVar[str] = "*"

    def positions(self, size: int) -> tuple[int, ...]:
        most = (2**31 - 1) // self.base**2  # The sum of a column is an int32.
        check("size", size, 1 <= size <= most, f"from 1 to {most} in base {self.base}")
        return (2 * size,)

    def answers(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count positions"]:
        first, second = jnp.moveaxis(jnp.maximum(inputs - 1, 0), -1, 0)
        places = inputs.shape[1]

        def add_row(place: Int[Array, ""], columns: Int[Array, "count places"]) -> Int[Array, "count places"]:
            # No digit that is rolled past the end is other than zero: the second number fills half of the places.
            return columns + jax.lax.dynamic_slice_in_dim(first, place, 1, 1) * jnp.roll(
                second, place, axis=1
            )

        columns = jax.lax.fori_loop(0, places // 2, add_row, jnp.zeros_like(first))
        asked = jnp.arange(places) < jnp.sum(inputs > 0, axis=(1, 2))[:, None]
        return jnp.where(asked, carry(columns, self.base), -1)


def carry(columns: Int[Array, "count places"], base: int) -> Int[Array, "count places"]:
    """The digits of numbers whose columns were summed.

    >>> carry(jnp.array([[14, 12, 0]]), 10)
    Array([[4, 3, 1]], dtype=int32)
    """

    def at_place(carried: Int[Array, " count"], column: Int[Array, " count"]) -> tuple[Array, Array]:
        total = column + carried
        return total // base, total % base

    _, digits = jax.lax.scan(at_place, jnp.zeros_like(columns[:, 0]), columns.T)
    return digits.T
