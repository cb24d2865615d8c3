"""A network that thinks: a field of vectors, one at each position, updated many times by one block that sees the input
again in every step. Trained on small problems, it solves larger ones by more steps.

The state after a step is scaled to unit size, so that it can be updated any number of times. A head reads an answer at
every position after any step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from lapwing.core import LapwingError
from lapwing.loops import scan

from ._blocks import Attention, Block, Convolution, Dense, Field, Mixer
from ._candidates import Candidates, Groups, said_of_candidates
from ._halting import Halted, Halting, Thought, think_until_settled, think_until_sure
from ._layer import RmsNorm, normal
from ._positions import Abacus, Positions, places_of, spread

Inputs = Int[Array, "count *positions channels"]
Logits = Float[Array, "count *positions classes"]


class LoopedError(LapwingError, ValueError):
    """Options of a looped network that do not fit together."""


@dataclass(frozen=True)
class LoopedSize:
    """The size of a looped network."""

    width: int = 32
    """numbers at each position"""
    hidden: int = 2
    """inner width of a block, in widths"""
    mixer: Mixer | None = None
    """how positions see each other: convolution (neighbours; any size), attention (all; any size), candidates (those of
    their groups, with a vector for each class that a position may have; one size), or dense (all; one size, that of
    the training); default: convolution, or what suits the problem of an experiment"""
    heads: int = 4
    """heads of an attention"""
    positions: Positions | None = None
    """how an attention knows where a position is: rotary (by distance), random (distances that are drawn in training
    from a range of --model.reach), abacus (a learned vector for the place of a digit in its number, with an offset
    that is drawn in training), or places (rotary, by the place of a digit in its number);
    default: rotary, or what suits the problem of an experiment"""
    reach: int = 128
    """number of positions of random, and of places of abacus"""
    halting: bool = False
    """also learn how sure the answer is, to stop thinking then"""

    def __post_init__(self) -> None:
        for name in ("width", "hidden", "heads", "reach"):
            if getattr(self, name) < 1:
                raise LoopedError(f"{name} should be at least 1, but is {getattr(self, name)}")
        if self.mixer == "attention" and self.width % (2 * self.heads):
            raise LoopedError(
                f"width should be a multiple of twice the {self.heads} heads, but is {self.width}"
            )
        if self.positions not in (None, "rotary") and self.mixer in ("convolution", "dense"):
            raise LoopedError(
                f"positions should be rotary for a mixer without attention, such as {self.mixer}, but is "
                f"{self.positions}"
            )


class Looped(eqx.Module):
    """A looped network for inputs with several channels of tokens, of which 0 is padding.

    >>> size = LoopedSize(width=8)
    >>> model = Looped(size, (3, 3), 2, (5,), jax.random.key(0))
    >>> model(jnp.ones((4, 5, 2), int), 7).shape
    (4, 5, 2)
    """

    embeddings: tuple[Float[Array, "tokens width"], ...]
    block: Block
    norm: RmsNorm
    widen: Float[Array, "width width"]
    head: Float[Array, "width classes"]
    abacus: Abacus | None
    halting: Halting | None
    positions: Positions = eqx.field(static=True)
    reach: int = eqx.field(static=True)
    separators: tuple[int, ...] = eqx.field(static=True)
    given: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    def __init__(
        self,
        size: LoopedSize,
        tokens: Sequence[int],
        classes: int,
        positions: Sequence[int],
        key: Key[Array, ""],
        groups: Groups = (),
        separators: tuple[int, ...] = (),
        given: int | None = None,
    ):
        """**Arguments:**

        - `tokens`: of each channel, the number of tokens.
        - `groups`: kinds of groups of positions that belong together, and for each of them the number of the group in
          which a position is.
        - `separators`: tokens between numbers, from which places are counted.
        - `given`: the token that gives class 0 away, where inputs say some of the answers.
        """
        _check_positions(size, len(positions), groups)
        width, hidden = size.width, size.hidden * size.width
        block_key, widen_key, head_key, *keys = jax.random.split(key, 3 + len(tokens))
        self.given, self.classes = given or 0, classes
        if size.mixer == "attention":
            self.block = Attention(width, hidden, size.heads, block_key, groups)
        elif size.mixer == "candidates":
            _check_candidates(len(tokens), groups, given)
            # An embedding of what is said of a candidate, and a head that reads its logit.
            tokens, classes = (3,), 1
            self.block = Candidates(width, hidden, block_key, groups)
        elif size.mixer == "dense":
            self.block = Dense(math.prod(positions), width, hidden, block_key)
        else:
            self.block = Convolution(len(positions), width, hidden, block_key)
        self.embeddings = tuple(
            normal(key, (count, width), len(tokens)) for key, count in zip(keys, tokens, strict=True)
        )
        self.norm = RmsNorm(width)
        self.widen = normal(widen_key, (width, width), width)
        self.head = normal(head_key, (width, classes), width)
        # With keys of their own: the other weights are those of a network without them.
        self.halting = Halting(width, jax.random.fold_in(key, 0)) if size.halting else None
        is_abacus = size.positions == "abacus"
        self.abacus = Abacus(size.reach, width, jax.random.fold_in(key, 1)) if is_abacus else None
        self.positions, self.reach, self.separators = size.positions or "rotary", size.reach, separators

    def recall(self, inputs: Inputs, drawn: Int[Array, ""] | None = None) -> Any:
        """What every step needs of the inputs: computed once.

        **Arguments:**

        - `drawn`: a random number, for positions that are drawn in training.
        """
        if isinstance(self.block, Candidates):
            said = said_of_candidates(inputs[..., 0], self.given, self.classes)
            # As a product: the gradient of a table of three rows would add up all candidates one after the other.
            return self.block.recall(jax.nn.one_hot(said, 3, dtype=self.head.dtype) @ self.embeddings[0])
        channels = [table[inputs[..., at]] for at, table in enumerate(self.embeddings)]
        x = sum(channels[1:], channels[0])
        if not isinstance(self.block, Attention) or self.positions == "rotary":
            return self.block.recall(x)
        if self.positions == "random":
            return self.block.recall(x, [spread(length, self.reach, drawn) for length in x.shape[1:-1]])
        places = places_of(inputs, self.separators)
        if self.abacus is not None:
            return self.block.recall(x + self.abacus(places, drawn), ())
        return self.block.recall(x, [places.astype(x.dtype)], is_near=True)

    def start(self, inputs: Inputs, number: Int[Array, ""] | int = 0) -> Field:
        """The state before the first step: zeros, or random numbers, the same for a number other than 0."""
        candidates = (self.classes,) if isinstance(self.block, Candidates) else ()
        zeros = jnp.zeros((*inputs.shape[:-1], *candidates, self.widen.shape[0]), self.widen.dtype)
        if isinstance(number, int) and number == 0:
            return zeros
        drawn = jax.random.normal(jax.random.key(number), zeros.shape, zeros.dtype)
        return jnp.where(jnp.asarray(number) == 0, zeros, drawn)

    def step(self, state: Field, recalled: Any) -> Field:
        return self.norm(self.block(state, recalled))

    def logits(self, state: Field) -> Logits:
        logits = jax.nn.gelu(state @ self.widen) @ self.head
        return logits[..., 0] if isinstance(self.block, Candidates) else logits

    def think(self, state: Field, recalled: Any, steps: Int[Array, ""] | int) -> Field:
        """The state after further steps, through which no gradient flows: any number, also one that is not known when
        this is compiled."""
        model, recalled = jax.lax.stop_gradient((self, recalled))
        return jax.lax.fori_loop(
            0, steps, lambda _, state: model.step(state, recalled), jax.lax.stop_gradient(state)
        )

    def unrolled(
        self, state: Field, recalled: Any, steps: int, memory: Any = "save"
    ) -> Float[Array, "steps ..."]:
        """The states after each of further steps, through which gradients flow."""

        def step(state: Field, _: None) -> tuple[Field, Field]:
            state = self.step(state, recalled)
            return state, state

        return scan(step, state, None, length=steps, memory=memory)[1]

    def __call__(self, inputs: Inputs, steps: Int[Array, ""] | int) -> Logits:
        """The logits after a number of steps, without a gradient."""
        return self.logits(self.think(self.start(inputs), self.recall(inputs), steps))

    def surest(
        self, state: Field, before: Field, by: Literal["answers", "halting"] = "answers"
    ) -> Float[Array, " count"]:
        """How sure the network is of its answers, from the states after a step and before it: to compare them.

        **Arguments:**

        - `by`: the mean log-probability of its answers, or the logit of its halting head.
        """
        if by == "halting":
            return self._halting()(state, before)
        each = jnp.max(jax.nn.log_softmax(self.logits(state)), axis=-1)
        return jnp.mean(each.reshape(len(each), -1), axis=-1)

    def best_of(
        self, inputs: Inputs, steps: int, count: int, by: Literal["answers", "halting"] = "answers"
    ) -> Int[Array, " count *positions"]:
        """The answers after thinking from several states, of which the surest is taken for each input."""
        recalled = self.recall(inputs)

        def think(number: Array) -> tuple[Array, Array]:
            before = self.think(self.start(inputs, number), recalled, steps - 1)
            state = self.step(before, recalled)
            return jnp.argmax(self.logits(state), axis=-1), self.surest(state, before, by)

        answers, sure = jax.lax.map(think, jnp.arange(count))
        return answers[jnp.argmax(sure, axis=0), jnp.arange(inputs.shape[0])]

    def until_settled(self, inputs: Inputs, most: int, patience: int = 8) -> Thought:
        """Thinks until the answers of all have stayed the same for `patience` steps, or for `most` steps.

        **Returns** the answers, and for each of them in how many steps it was found.
        """
        return think_until_settled(self, inputs, most, patience)

    def until_sure(self, inputs: Inputs, most: int, least: float = 0.99) -> Halted:
        """Thinks until the halting head gives all answers a probability of at least `least`, or for `most` steps.

        **Returns** the answers, and for each of them how sure the network was, after how many steps.

        >>> model = Looped(LoopedSize(width=8, halting=True), (3,), 2, (5,), jax.random.key(0))
        >>> model.until_sure(jnp.ones((4, 5, 1), int), most=7).steps.shape
        (4,)
        """
        return think_until_sure(self, self._halting(), inputs, most, least)

    def _halting(self) -> Halting:
        if self.halting is None:
            raise LoopedError(
                "expected a network that learned when to halt, but it has no head for it; train with "
                "LoopedSize(halting=True), --model.halting"
            )
        return self.halting


def _check_candidates(channels: int, groups: Groups, given: int | None) -> None:
    if channels > 1 or not groups or given is None:
        raise LoopedError(
            "mixer should be convolution, attention or dense, but is candidates, which is for inputs of one channel "
            "that give some of the answers, at positions in groups"
        )


def _check_positions(size: LoopedSize, dimensions: int, groups: Groups) -> None:
    if size.positions not in (None, "rotary") and groups:
        raise LoopedError(
            f"positions should be rotary where positions are in groups, but is {size.positions}"
        )
    if size.positions in ("abacus", "places") and dimensions > 1:
        raise LoopedError(
            f"positions should be rotary or random on a square, where there are no numbers, but is {size.positions}"
        )
