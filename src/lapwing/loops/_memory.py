"""Less memory for more computation: the loop in segments, of which only the first carry is kept.

The backward pass runs each segment's forward loop again. A segment can itself be cut into segments; with a fixed
number per level this needs memory for a few carries per level only, so it grows with the logarithm of the length
(`"binomial"`), at one more forward pass per level. (The xs of one outer segment, a sixteenth of all, are copied too.)
Segments are ordinary `jax.checkpoint` calls in an outer `jax.lax.scan`, so all derivatives stay exact, and inside a
segment the loop is rewritten as any other.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from lapwing.loops import _jaxprs as jaxprs
from lapwing.loops._costs import readable
from lapwing.loops._loop import Loop, Values

Memory = Literal["save", "sqrt", "binomial"] | int | tuple[Literal["budget"], int]
Plan = tuple[int, ...]

PIECES = 16
"""Segments per level of `"binomial"`: carries are small next to what a step keeps, so a few do not matter."""


def checked_memory(memory: Any) -> Memory:
    if memory in ("save", "sqrt", "binomial"):
        return memory
    if isinstance(memory, int) and not isinstance(memory, bool) and memory >= 1:
        return memory
    if isinstance(memory, tuple) and len(memory) == 2 and memory[0] == "budget" and memory[1] > 0:
        return memory
    raise ValueError(
        "memory must be 'save', 'sqrt', 'binomial', a number of steps from 1, or ('budget', bytes), "
        f"not {memory!r}"
    )


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of a carry, of what one step keeps for the backward pass, and of its x and y."""

    carry: int
    step: int
    stacked: int

    def needed(self, length: int, plan: Plan) -> int:
        """What the backward pass keeps at once when the loop is cut into segments by this plan."""
        total = 0
        for segment in plan:
            # A segment works on a copy of its xs and ys; one left over makes jax copy those of all others too.
            total += (segment if length % segment == 0 else length) * self.stacked
            total += -(-length // segment) * self.carry
            length = segment
        return total + length * self.step


def plan_for(memory: Memory, length: int, sizes: Sizes) -> Plan:
    """The lengths of the segments, outermost first; none where everything is kept."""
    if memory == "save":
        return ()
    if memory == "sqrt":
        return min(_single_level(length), key=lambda plan: sizes.needed(length, plan), default=())
    if memory == "binomial":
        return _nested(length)
    if isinstance(memory, int):
        return () if memory >= length else (memory,)
    return _within(memory[1], length, sizes)


def _single_level(length: int) -> list[Plan]:
    """Longest segments first: fewer of them, and larger products inside."""
    return [(segment,) for segment in range(length - 1, 0, -1)]


def _nested(length: int) -> Plan:
    found = []
    while length > 2 * PIECES:
        length = length // PIECES
        found.append(length)
    return tuple(found)


def _within(budget: int, length: int, sizes: Sizes) -> Plan:
    """The plan with the fewest extra forward passes that fits."""
    plans = [(), *_single_level(length), _nested(length)]
    for plan in plans:
        if sizes.needed(length, plan) <= budget:
            return plan
    least = min(sizes.needed(length, plan) for plan in plans)
    raise ValueError(
        f"memory=('budget', {budget}): this loop of {length} steps needs at least {least} bytes "
        f"({readable(least)}) for its backward pass; give that much or shorten the loop"
    )


Segment = Callable[[Loop, Values, Values, Values], list[Any]]


def in_segments(loop: Loop, consts: Values, init: Values, xs: Values, plan: Plan, run: Segment) -> list[Any]:
    """Run the loop by `run`, cut into segments of `plan[0]` steps, each again by the rest of the plan."""
    if not plan:
        return run(loop, consts, init, xs)
    length = plan[0]
    count, rest = divmod(loop.length, length)
    whole = dataclasses.replace(loop, length=length)
    tail = dataclasses.replace(loop, length=rest)

    def segment(carry: Values, xs: Values) -> tuple[list[Any], list[Any]]:
        out = in_segments(whole, consts, carry, xs, plan[1:], run)
        return out[: loop.num_carry], out[loop.num_carry :]

    def whole_segments(carry: Values) -> tuple[Any, Any]:
        pieces = [x[: count * length].reshape(count, length, *x.shape[1:]) for x in xs]
        again = jax.checkpoint(segment, prevent_cse=False)
        carry, ys = jax.lax.scan(again, list(carry), pieces, length=count, reverse=loop.reverse)
        return carry, [y.reshape(count * length, *y.shape[2:]) for y in ys]

    def short_segment(carry: Values) -> tuple[Any, Any]:
        out = jax.checkpoint(lambda carry, xs: run(tail, consts, carry, xs))(
            list(carry), [x[count * length :] for x in xs]
        )
        return out[: loop.num_carry], out[loop.num_carry :]

    if not rest:
        carry, ys = whole_segments(init)
        return [*carry, *ys]
    if loop.reverse:
        carry, last = short_segment(init)
        carry, first = whole_segments(carry)
    else:
        carry, first = whole_segments(init)
        carry, last = short_segment(carry)
    return [*carry, *(jnp.concatenate(pair) for pair in zip(first, last, strict=True))]


def sizes(loop: Loop, kept: list[jaxprs.Atom]) -> Sizes:
    def total(atoms: Sequence[jaxprs.Atom]) -> int:
        return sum(map(jaxprs.nbytes, atoms))

    return Sizes(total(loop.carry), total(kept), total([*loop.xs, *loop.ys]))
