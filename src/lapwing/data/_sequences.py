"""Small problems on sequences of symbols, drawn on the device from a key: no loader, no files.

A sequence ends with END, so its length is part of the answer; PAD follows, which no loss or metric counts. Numbers are
written least significant digit first, and two operands are interleaved (a0 b0 a1 b1 ...), so that a longer number
continues a shorter one.

A hash of the example itself decides whether it is for training or for testing: a test example is never trained on,
whatever the seed, length or curriculum. To draw an example, several candidates are drawn and the first of the wanted
split is used; if there is none, the example is all PAD and not counted.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, UInt

from lapwing.core import LapwingError

PAD = 0
"""The token of empty places, which no loss or metric counts."""
END = 1
"""The token that ends a sequence, so that its length is part of the answer."""
FIRST = 2
"""The token of symbol 0; those of the others follow."""
HELD_OUT = 1 / 8
"""The fraction of all examples that is held out for testing."""

Name = Literal["copy", "flip", "roll", "sort", "cumsum", "add"]
"""The names of the problems."""
Split = Literal["train", "test"]
"""The examples to train on, or those that are held out."""
NAMES: tuple[Name, ...] = get_args(Name)
"""The names of the problems, in the order of the list in the docs."""

# Enough that at most one of 4000 examples has no candidate of the wanted split.
_CANDIDATES: dict[Split, int] = {"train": 4, "test": 64}
_LARGEST = 2**30


class SequenceError(LapwingError, ValueError):
    """An invalid option of a problem."""


def check(name: str, value: object, good: bool, expected: str) -> None:
    """Raises an error that names the option and what it should be, unless `good`."""
    if not good:
        raise SequenceError(f"{name} should be {expected}, but is {value}")


class Examples(NamedTuple):
    """Input tokens, and the tokens of the right answers.

    >>> examples = Examples(jnp.array([[4, 7, END]]), jnp.array([[7, 4, END]]))   # a reversal
    >>> examples.inputs.shape, examples.targets[0].tolist()
    ((1, 3), [7, 4, 1])
    """

    inputs: Int[Array, "examples input"]
    targets: Int[Array, "examples output"]


@dataclass(frozen=True)
class SequenceProblem:
    """A problem on sequences of symbols: copy, flip (reverse), roll (by the value of the first symbol), sort, cumsum
    (modulo the base) or add (two numbers below `below`, which also determines their length).

    >>> problem = SequenceProblem("add", base=10, below=100)
    >>> problem.inputs, problem.outputs, problem.vocabulary
    (6, 4, 12)
    >>> examples = problem.draw(jax.random.key(0), 3)
    >>> examples.inputs.shape, examples.targets.shape
    ((3, 6), (3, 4))
    """

    name: Name
    base: int = 16
    length: int = 20
    below: int = 1000

    def __post_init__(self) -> None:
        check("task", self.name, self.name in NAMES, f"one of {', '.join(NAMES)}")
        check("base", self.base, self.base >= 2, "at least 2")
        check("length", self.length, self.length >= 1, "at least 1")
        check("below", self.below, 2 <= self.below <= _LARGEST, "from 2 to 2^30")

    @property
    def longest(self) -> int:
        """Symbols of the longest sequence, or digits of the largest operand."""
        return digits_of(self.below - 1, self.base) if self.name == "add" else self.length

    @property
    def inputs(self) -> int:
        """Tokens of an input, including END."""
        return (2 if self.name == "add" else 1) * (self.longest + 1)

    @property
    def outputs(self) -> int:
        """Tokens of an answer, including END."""
        return self.longest + (2 if self.name == "add" else 1)

    @property
    def places(self) -> int:
        """Tokens of the longest answer that occurs, including END. A sum may have fewer digits than there is room for.

        >>> SequenceProblem("add", base=16, below=1000).places, SequenceProblem("add", base=10, below=1000).places
        (4, 5)
        """
        digits = digits_of(2 * (self.below - 1), self.base) if self.name == "add" else self.longest
        return digits + 1

    @property
    def vocabulary(self) -> int:
        """Number of tokens: the symbols, END and PAD."""
        return self.base + FIRST

    def draw(
        self,
        key: Key[Array, ""],
        count: int,
        split: Split = "train",
        length: Int[Array, ""] | int | None = None,
    ) -> Examples:
        """Examples of one length (for add: of at most that many digits), by default the longest."""
        at_most = jnp.asarray(self.longest if length is None else length, jnp.int32)
        shape = (_CANDIDATES[split], count)
        drawn = (
            self._numbers(key, shape, at_most) if self.name == "add" else self._symbols(key, shape, at_most)
        )
        wanted = held_out(jnp.sort(drawn, axis=-1) if self.name == "add" else drawn) == (split == "test")
        first = jnp.argmax(wanted, axis=0)
        chosen = jnp.take_along_axis(drawn, first[None, :, None], axis=0)[0]
        examples = _added(chosen, self) if self.name == "add" else _answered(chosen, at_most, self)
        found = jnp.any(wanted, axis=0)[:, None]
        return Examples(*(jnp.where(found, tokens, PAD) for tokens in examples))

    def _symbols(
        self, key: Key[Array, ""], shape: tuple[int, int], length: Int[Array, ""]
    ) -> Int[Array, "candidates examples places"]:
        """Symbols, and -1 after the end."""
        symbols = jax.random.randint(key, (*shape, self.length), 0, self.base)
        return jnp.where(jnp.arange(self.length) < length, symbols, -1)

    def _numbers(
        self, key: Key[Array, ""], shape: tuple[int, int], digits: Int[Array, ""]
    ) -> Int[Array, "candidates examples operands"]:
        # A table, because a power of a traced number may overflow.
        limits = jnp.asarray([min(self.below, self.base**i) for i in range(self.longest + 1)], jnp.int32)
        return jax.random.randint(key, (*shape, 2), 0, limits[digits])


def digits_of(number: int, base: int) -> int:
    """The number of digits of a number.

    >>> digits_of(999, 16), digits_of(0, 10)
    (3, 1)
    """
    count = 1
    while number := number // base:
        count += 1
    return count


def held_out(values: Int[Array, "*examples places"]) -> Bool[Array, "*examples"]:
    """Whether an example is held out, by a hash of its values; negative values do not count.

    >>> examples = jnp.arange(30_000).reshape(10_000, 3)
    >>> round(float(held_out(examples).mean()), 2)
    0.13
    """
    return hash_of(values) < jnp.uint32(HELD_OUT * 2**32)


def hash_of(values: Int[Array, "*examples places"]) -> UInt[Array, "*examples"]:
    """A hash of values and their places; negative values do not count, so that padding at the end changes nothing."""
    places = jnp.arange(1, values.shape[-1] + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    each = _mixed(values.astype(jnp.uint32) + places)
    return _mixed(jnp.sum(jnp.where(values >= 0, each, 0), axis=-1, dtype=jnp.uint32))


def _mixed(bits: UInt[Array, "..."]) -> UInt[Array, "..."]:
    """The finalizer of MurmurHash3: each bit of the result depends on all bits."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def _answered(
    symbols: Int[Array, "examples places"], length: Int[Array, ""], task: SequenceProblem
) -> tuple[Int[Array, "examples input"], Int[Array, "examples output"]]:
    places = jnp.arange(task.length)
    match task.name:
        case "flip":
            answers = jnp.take(symbols, (length - 1 - places) % task.length, axis=1)
        case "roll":
            answers = jnp.take_along_axis(symbols, (places - symbols[:, :1]) % length, axis=1)
        case "sort":
            answers = jnp.sort(jnp.where(places < length, symbols, task.base), axis=1)
        case "cumsum":
            answers = jnp.cumsum(symbols, axis=1) % task.base
        case _:
            answers = symbols
    return _tokens(symbols, length), _tokens(answers, length)


def _added(
    numbers: Int[Array, "examples operands"], task: SequenceProblem
) -> tuple[Int[Array, "examples input"], Int[Array, "examples output"]]:
    columns = _written(numbers, task.longest, task.base)
    return jnp.swapaxes(columns, 1, 2).reshape(len(numbers), -1), _written(
        jnp.sum(numbers, axis=1), task.longest + 1, task.base
    )


def _written(numbers: Int[Array, "*numbers"], places: int, base: int) -> Int[Array, "*numbers tokens"]:
    """Numbers as tokens, without leading zeros."""
    powers = jnp.asarray([base**i for i in range(places)], jnp.int32)
    digits = numbers[..., None] // powers % base
    return _tokens(digits, 1 + jnp.sum(numbers[..., None] >= powers[1:], axis=-1, keepdims=True))


def _tokens(
    symbols: Int[Array, "*examples places"], length: Int[Array, "..."]
) -> Int[Array, "*examples tokens"]:
    places = jnp.arange(symbols.shape[-1] + 1)
    symbols = jnp.pad(symbols, [(0, 0)] * (symbols.ndim - 1) + [(0, 1)])
    return jnp.where(places < length, symbols + FIRST, jnp.where(places == length, END, PAD))
