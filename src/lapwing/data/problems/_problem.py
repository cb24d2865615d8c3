"""What every problem has: a generator on the device, a checker, a size that is its difficulty, and a text for people.

A problem is a field of positions, a line or a square. A position holds a token for each channel, of which 0 is padding,
and asks for a class, or for nothing (-1). Fields of one call have one shape, that of the largest size; smaller
instances fill its beginning, and the rest is padding.

A hash of the instance itself decides whether it is for training or for testing, as in `lapwing.data.SequenceProblem`:
no seed, size or curriculum leads a test instance into training. `first_found` draws until every instance is of the
wanted split.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from lapwing.core import LapwingError
from lapwing.data._sequences import Split, held_out

_TRIES = 128
"""The probability that an instance is not found is (7/8)^128, less than one in ten million."""

Values = TypeVar("Values")


class ProblemError(LapwingError, ValueError):
    """An invalid option of a problem, or a text that is not one of its instances."""


def check(name: str, value: object, good: bool, expected: str) -> None:
    """Raises an error that names the option and what it should be, unless `good`."""
    if not good:
        raise ProblemError(f"{name} should be {expected}, but is {value}")


class Instances(NamedTuple):
    """What is asked, and the right answers."""

    inputs: Int[Array, "count *positions channels"]
    """Tokens; 0 is padding in every channel."""
    targets: Int[Array, " count *positions"]
    """The class at each position; -1 where nothing is asked."""


@dataclass(frozen=True)
class Problem(abc.ABC):
    """A problem of any size: draws instances on the device, checks answers, and reads and writes texts."""

    name: ClassVar[str]
    dimensions: ClassVar[int] = 1
    """1: the positions are a line; 2: a square."""

    @property
    @abc.abstractmethod
    def tokens(self) -> tuple[int, ...]:
        """The number of tokens of each channel, including padding."""

    @property
    @abc.abstractmethod
    def classes(self) -> int:
        """The number of classes of an answer at a position."""

    @abc.abstractmethod
    def positions(self, size: int) -> tuple[int, ...]:
        """The shape of the field of problems up to this size."""

    def groups(self, size: int) -> tuple[tuple[int, ...], ...]:
        """Kinds of groups of positions that belong together, such as rows and columns, and for each of them the number
        of the group in which a position is. None, where the distance between positions counts."""
        del size
        return ()

    @property
    def separators(self) -> tuple[int, ...]:
        """Tokens between numbers: the place of a digit in its number is counted from them."""
        return ()

    @property
    def given(self) -> int | None:
        """The token that gives class 0 away, the next one class 1, and so on; None where inputs give no answers."""
        return None

    def longest_number(self, size: int) -> int:
        """The most places of a number, that of an answer included, in problems up to this size."""
        return self.positions(size)[0]

    def size_of(self, inputs: Int[Any, "*positions channels"]) -> int:
        """The size whose field an input fills, or one more: for how long to think about it."""
        return len(inputs)

    def twice(self, size: int) -> int:
        """The next larger size to look at: twice as large, where there is one."""
        return 2 * size

    @abc.abstractmethod
    def draw(
        self,
        key: Key[Array, ""],
        count: int,
        size: int,
        split: Split = "train",
        least: int | None = None,
    ) -> Instances:
        """Draws instances on the device; it can be compiled and batched.

        **Arguments:**

        - `size`: of every instance, or, with `least`, of the largest: the size of each is drawn from `least` to `size`.
        - `split`: no instance is in both.

        **Returns:** instances; one that does not exist, where a size has too few to be split, is all padding and
        asks for nothing.
        """

    @abc.abstractmethod
    def solve(self, inputs: Int[Any, "*positions channels"]) -> Int[np.ndarray, " *positions"]:
        """The right answer to one input, on the host; -1 where nothing is asked."""

    @abc.abstractmethod
    def text(
        self, inputs: Int[Any, "*positions channels"], answer: Int[Any, " *positions"] | None = None
    ) -> str:
        """One input as a person writes it, with an answer if given. Padding is not written."""

    @abc.abstractmethod
    def parse(self, text: str, size: int | None = None) -> Int[np.ndarray, "*positions channels"]:
        """The input that a person wrote, in the smallest field, or in the field of a size.

        **Raises:** `ProblemError`, one sentence that says what is wrong with the text.
        """

    def right(self, instances: Instances, answers: Int[Array, " count *positions"]) -> Bool[Array, " count"]:
        """Whether an answer is right at every position that asks. Where nothing is asked, there is no right answer."""
        asked = instances.targets >= 0
        axes = tuple(range(1, asked.ndim))
        return jnp.all((answers == instances.targets) | ~asked, axes) & jnp.any(asked, axes)

    def check_draw(self, count: int, size: int, split: str, least: int | None) -> None:
        """Raises an error unless `draw` can be called with these."""
        check("count", count, count >= 1, "at least 1")
        check("split", split, split in get_args(Split), "'train' or 'test'")
        self.positions(size)
        if least is not None:
            self.positions(least)
            check("least", least, least <= size, f"at most size ({size})")


@dataclass(frozen=True)
class LineProblem(Problem):
    """A problem whose inputs are independent symbols on a line, and whose answers a function computes from them.

    A subclass says how inputs are drawn and answered; this class splits them into training and testing.
    """

    @abc.abstractmethod
    def sample(
        self, key: Key[Array, ""], count: int, least: int, size: int
    ) -> Int[Array, "count positions channels"]:
        """Inputs of sizes from `least` to `size`, of either split."""

    @abc.abstractmethod
    def answers(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count positions"]:
        """The right answers; -1 where nothing is asked."""

    def identity(self, inputs: Int[Array, "count positions channels"]) -> Int[Array, "count values"]:
        """What is hashed: the same for inputs that are the same problem; -1 for padding."""
        return inputs[..., 0] - 1

    def draw(
        self,
        key: Key[Array, ""],
        count: int,
        size: int,
        split: Split = "train",
        least: int | None = None,
    ) -> Instances:
        self.check_draw(count, size, split, least)

        def attempt(key: Key[Array, ""]) -> tuple[Array, Array]:
            inputs = self.sample(key, count, size if least is None else least, size)
            return inputs, is_of(split, self.identity(inputs))

        inputs, found = first_found(key, attempt)
        inputs = jnp.where(found[:, None, None], inputs, 0)
        return Instances(inputs, self.answers(inputs))

    def solve(self, inputs: Int[Any, "positions channels"]) -> Int[np.ndarray, " positions"]:
        return np.asarray(_answers(self, jnp.asarray(inputs)[None])[0])


# Compiled, since a call for one input would spend its time on dispatch.
_answers = jax.jit(lambda problem, inputs: problem.answers(inputs), static_argnums=0)


def is_of(split: Split, values: Int[Array, "*count values"]) -> Bool[Array, " *count"]:
    """Whether instances with these values are of the split."""
    return held_out(values) == (split == "test")


def first_found(
    key: Key[Array, ""],
    attempt: Callable[[Key[Array, ""]], tuple[Values, Bool[Array, " count"]]],
) -> tuple[Values, Bool[Array, " count"]]:
    """Draws again until every instance is found, or none can be expected to be.

    **Arguments:**

    - `attempt`: a function of a key that returns arrays with a row for each instance, and whether each is a wanted one.

    **Returns:** the first wanted row of each instance, and whether there was one.
    """

    def missing(state: tuple[Array, Values, Array]) -> Bool[Array, ""]:
        tries, _, found = state
        return (tries < _TRIES) & ~jnp.all(found)

    def again(state: tuple[Array, Values, Array]) -> tuple[Array, Values, Array]:
        tries, values, found = state
        others, wanted = attempt(jax.random.fold_in(key, tries))
        kept = jax.tree.map(
            lambda old, new: jnp.where(found.reshape(-1, *[1] * (old.ndim - 1)), old, new), values, others
        )
        return tries + 1, kept, found | wanted

    # Begins with nothing rather than with an attempt, so that attempts are compiled once.
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(attempt, key))
    _, values, found = jax.lax.while_loop(missing, again, (jnp.int32(0), *nothing))
    return values, found
