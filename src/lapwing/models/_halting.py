"""When to stop thinking: when the answer does not change any more, or when the network says that it is right.

How sure it is, a head reads from the state, and from what and how much the last step changed in it. Each position has
a say: the odds of a mistake add up over the positions, so that a single doubtful one is enough, however many there are.
(A mean would drown it, and the more so the larger the problem.) No gradient of the head reaches the network: what it
learns to answer does not depend on whether it is asked how sure it is.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ._blocks import Field
from ._layer import normal

if TYPE_CHECKING:
    from ._looped import Looped


class Halting(eqx.Module):
    """How sure a looped network is that its whole answer is right.

    >>> head = Halting(8, jax.random.key(0))
    >>> state, before = jax.random.normal(jax.random.key(1), (2, 3, 5, 8))
    >>> head(state, before).shape
    (3,)
    """

    of_state: Float[Array, "width hidden"]
    of_change: Float[Array, "width hidden"]
    of_size: Float[Array, " hidden"]
    bias: Float[Array, " hidden"]
    narrow: Float[Array, " hidden"]
    narrow_bias: Float[Array, ""]

    def __init__(self, width: int, key: Key[Array, ""]):
        first, second, third, fourth = jax.random.split(key, 4)
        self.of_state = normal(first, (width, width), 2 * width)
        self.of_change = normal(second, (width, width), 2 * width)
        self.of_size = normal(fourth, (width,), 1)
        self.bias = jnp.zeros(width)
        self.narrow = normal(third, (width,), width)
        self.narrow_bias = jnp.zeros(())

    def __call__(self, state: Field, before: Field) -> Float[Array, " count"]:
        """The logit of the answer after a step being right, from the states after it and before it."""
        state, before = jax.lax.stop_gradient((state, before))
        change = state - before
        # Its size differs by orders of magnitude: of a state that has settled, it is small, but not zero.
        size = 0.25 * jnp.log(jnp.mean(change**2, axis=-1, keepdims=True) + 1e-8)
        seen = state @ self.of_state + change @ self.of_change + size * self.of_size
        each = jax.nn.gelu(seen + self.bias) @ self.narrow + self.narrow_bias
        return -jax.nn.logsumexp(-each.reshape(len(each), -1), axis=-1)


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


class Halted(eqx.Module):
    """A state, the answers, how sure the network was of each, and after how many steps.

    >>> from lapwing.models import Looped, LoopedSize
    >>> model = Looped(LoopedSize(width=8, halting=True), (3,), 2, (5,), jax.random.key(0))
    >>> halted = model.until_sure(jnp.ones((4, 5, 1), int), most=3, least=0.999999)
    >>> halted.answers.shape, halted.steps.tolist(), bool(jnp.all(halted.sure < 0.999999))
    ((4, 5), [3, 3, 3, 3], True)
    """

    state: Field
    answers: Int[Array, " count *positions"]
    sure: Float[Array, " count"]
    steps: Int[Array, " count"]


def think_until_settled(model: "Looped", inputs: Any, most: int, patience: int) -> Thought:
    recalled, state, answers, none = _begin(model, inputs)

    def thinking(carry: tuple[Array, Thought]) -> Bool[Array, ""]:
        at, thought = carry
        return (at < most) & jnp.any(thought.same < patience)

    def step(carry: tuple[Array, Thought]) -> tuple[Array, Thought]:
        at, thought = carry
        state = model.step(thought.state, recalled)
        answers = jnp.argmax(model.logits(state), axis=-1)
        settled = thought.same >= patience
        kept = jnp.all(answers == thought.answers, axis=tuple(range(1, answers.ndim)))
        same = jnp.where(settled, thought.same, jnp.where(kept, thought.same + 1, 0))
        found = jnp.where(settled | kept, thought.steps, at + 1)
        return at + 1, Thought(state, _where(settled, thought.answers, answers), same, found)

    begin = Thought(state, answers, none, none)
    return jax.lax.while_loop(thinking, step, (jnp.zeros((), int), begin))[1]


def think_until_sure(model: "Looped", head: Halting, inputs: Any, most: int, least: float) -> Halted:
    recalled, state, answers, none = _begin(model, inputs)

    def thinking(carry: tuple[Array, Halted]) -> Bool[Array, ""]:
        at, thought = carry
        return (at < most) & jnp.any(thought.sure < least)

    def step(carry: tuple[Array, Halted]) -> tuple[Array, Halted]:
        at, thought = carry
        state = model.step(thought.state, recalled)
        halted = thought.sure >= least
        answers = _where(halted, thought.answers, jnp.argmax(model.logits(state), axis=-1))
        sure = jnp.where(halted, thought.sure, jax.nn.sigmoid(head(state, thought.state)))
        return at + 1, Halted(state, answers, sure, jnp.where(halted, thought.steps, at + 1))

    begin = Halted(state, answers, jnp.zeros(len(none), state.dtype), none)
    return jax.lax.while_loop(thinking, step, (jnp.zeros((), int), begin))[1]


def _begin(model: "Looped", inputs: Any) -> tuple[Any, Field, Array, Array]:
    """What is recalled, the first state, no answers, and no steps."""
    return (
        model.recall(inputs),
        model.start(inputs),
        jnp.full(inputs.shape[:-1], -1),
        jnp.zeros(inputs.shape[0], int),
    )


def _where(kept: Bool[Array, " count"], old: Array, new: Array) -> Array:
    return jnp.where(kept.reshape(-1, *[1] * (old.ndim - 1)), old, new)
