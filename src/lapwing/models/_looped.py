"""A network that thinks: a field of vectors, one at each position, updated many times by one block that sees the input
again in every step. Trained on small problems, it solves larger ones by more steps.

The state after a step is scaled to unit size, so that it can be updated any number of times. A head reads an answer at
every position after any step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.core import LapwingError
from lapwing.loops import scan

from ._blocks import Attention, Block, Convolution, Dense, Field, Groups, Mixer
from ._layer import RmsNorm, normal

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
    """how positions see each other: convolution (neighbours; any size), attention (all; any size), or dense (all; one
    size, that of the training); default: convolution, or what suits the problem of an experiment"""
    heads: int = 4
    """heads of an attention"""

    def __post_init__(self) -> None:
        for name in ("width", "hidden", "heads"):
            if getattr(self, name) < 1:
                raise LoopedError(f"{name} should be at least 1, but is {getattr(self, name)}")
        if self.mixer == "attention" and self.width % (2 * self.heads):
            raise LoopedError(
                f"width should be a multiple of twice the {self.heads} heads, but is {self.width}"
            )


class Thought(eqx.Module):
    """A state, and the answers that were read from it for how many steps already.

    >>> thought = Thought(jnp.zeros((1, 2, 8)), answers=jnp.array([[3, 1]]), same=jnp.array([8]), steps=jnp.array([5]))
    >>> f"{thought.answers[0]} since step {thought.steps[0]}"
    '[3 1] since step 5'
    """

    state: Field
    answers: Int[Array, " count *positions"]
    same: Int[Array, " count"]
    steps: Int[Array, " count"]


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

    def __init__(
        self,
        size: LoopedSize,
        tokens: Sequence[int],
        classes: int,
        positions: Sequence[int],
        key: Key[Array, ""],
        groups: Groups = (),
    ):
        width, hidden = size.width, size.hidden * size.width
        block_key, widen_key, head_key, *keys = jax.random.split(key, 3 + len(tokens))
        self.embeddings = tuple(
            normal(key, (count, width), len(tokens)) for key, count in zip(keys, tokens, strict=True)
        )
        if size.mixer == "attention":
            self.block = Attention(width, hidden, size.heads, block_key, groups)
        elif size.mixer == "dense":
            self.block = Dense(math.prod(positions), width, hidden, block_key)
        else:
            self.block = Convolution(len(positions), width, hidden, block_key)
        self.norm = RmsNorm(width)
        self.widen = normal(widen_key, (width, width), width)
        self.head = normal(head_key, (width, classes), width)

    def recall(self, inputs: Inputs) -> Any:
        """What every step needs of the inputs: computed once."""
        channels = [table[inputs[..., at]] for at, table in enumerate(self.embeddings)]
        return self.block.recall(sum(channels[1:], channels[0]))

    def start(self, inputs: Inputs, number: Int[Array, ""] | int = 0) -> Field:
        """The state before the first step: zeros, or random numbers, the same for a number other than 0."""
        zeros = jnp.zeros((*inputs.shape[:-1], self.widen.shape[0]), self.widen.dtype)
        if isinstance(number, int) and number == 0:
            return zeros
        drawn = jax.random.normal(jax.random.key(number), zeros.shape, zeros.dtype)
        return jnp.where(jnp.asarray(number) == 0, zeros, drawn)

    def step(self, state: Field, recalled: Any) -> Field:
        return self.norm(self.block(state, recalled))

    def logits(self, state: Field) -> Logits:
        return jax.nn.gelu(state @ self.widen) @ self.head

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

    def best_of(self, inputs: Inputs, steps: int, count: int) -> Int[Array, " count *positions"]:
        """The answers after thinking from several states, of which the surest is taken for each input."""
        recalled = self.recall(inputs)

        def think(number: Array) -> Logits:
            return self.logits(self.think(self.start(inputs, number), recalled, steps))

        logits = jax.lax.map(think, jnp.arange(count))
        surest = jnp.max(jax.nn.log_softmax(logits), axis=-1)
        sure = jnp.mean(surest.reshape(*surest.shape[:2], -1), axis=-1)
        best = jnp.argmax(sure, axis=0)
        return jnp.argmax(logits[best, jnp.arange(inputs.shape[0])], axis=-1)

    def until_settled(self, inputs: Inputs, most: int, patience: int = 8) -> Thought:
        """Thinks until the answers of all have stayed the same for `patience` steps, or for `most` steps.

        **Returns** the answers, and for each of them in how many steps it was found.
        """
        recalled, state = self.recall(inputs), self.start(inputs)
        count = inputs.shape[0]
        begin = Thought(state, jnp.full(inputs.shape[:-1], -1), jnp.zeros(count, int), jnp.zeros(count, int))

        def thinking(carry: tuple[Array, Thought]) -> Bool[Array, ""]:
            at, thought = carry
            return (at < most) & jnp.any(thought.same < patience)

        def step(carry: tuple[Array, Thought]) -> tuple[Array, Thought]:
            at, thought = carry
            state = self.step(thought.state, recalled)
            answers = jnp.argmax(self.logits(state), axis=-1)
            settled = thought.same >= patience
            kept = jnp.all(answers == thought.answers, axis=tuple(range(1, answers.ndim)))
            same = jnp.where(settled, thought.same, jnp.where(kept, thought.same + 1, 0))
            found = jnp.where(settled | kept, thought.steps, at + 1)
            keep = settled.reshape(-1, *[1] * (answers.ndim - 1))
            return at + 1, Thought(state, jnp.where(keep, thought.answers, answers), same, found)

        return jax.lax.while_loop(thinking, step, (jnp.zeros((), int), begin))[1]
