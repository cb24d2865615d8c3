"""Memory policies: less memory for more computation, by cutting the loop into segments that are recomputed.

The forward pass keeps the first carry of each segment, and the backward pass runs the segment's forward loop again. A
segment can itself be cut into segments. Segments are ordinary `jax.checkpoint` calls in an outer `jax.lax.scan`, so all
derivatives stay exact, and inside a segment the loop is rewritten like any other.

A policy is an object with one method, which returns the lengths of the segments, outermost first:

    def segments(self, loop: LoopSizes) -> tuple[int, ...]

`(100, 10)` means segments of 100 steps, each cut into segments of 10; `()` keeps everything. To add a policy, write a
frozen dataclass with this method and pass it as `memory=`.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp

from lapwing.core import format_bytes
from lapwing.loops._bound import BoundLoop
from lapwing.loops._errors import LoopError

SEGMENTS_PER_LEVEL = 16
"""Of `Nested`: a carry is small next to what a step keeps, so a few of them do not matter."""


@dataclasses.dataclass(frozen=True)
class LoopSizes:
    """What a policy knows about a loop: its length, and bytes per step.

    >>> sizes = LoopSizes(length=1000, carry=10, stacked=0, measure_step=lambda: 100)
    >>> sizes.needed(()), sizes.needed((100,)), sizes.needed((100, 10))
    (100000, 10100, 1200)
    """

    length: int
    carry: int
    """Bytes of the carry."""
    stacked: int
    """Bytes of one step's x and y."""
    measure_step: Callable[[], int]

    @functools.cached_property
    def step(self) -> int:
        """Bytes that the backward pass needs of each step. Measured when asked for, since it takes a trace."""
        return self.measure_step()

    def needed(self, segments: tuple[int, ...]) -> int:
        """Bytes that the backward pass needs at once when the loop is cut into these segments."""
        total, length = 0, self.length
        for segment in segments:
            # A segment works on a copy of its xs and ys; one left over makes jax copy those of all others too.
            total += (segment if length % segment == 0 else length) * self.stacked
            total += -(-length // segment) * self.carry
            length = segment
        return total + length * self.step


@runtime_checkable
class MemoryPolicy(Protocol):
    """What `memory=` takes: an object that decides into which segments a loop is cut. It must be hashable.

    >>> import dataclasses, jax.numpy as jnp
    >>> @dataclasses.dataclass(frozen=True)
    ... class Halves:
    ...     '''Keeps the carry at the middle of a loop, and computes each half again in the backward pass.'''
    ...     def segments(self, loop):
    ...         return (loop.length // 2,) if loop.length % 2 == 0 else ()
    >>> isinstance(Halves(), MemoryPolicy)
    True
    >>> import lapwing as lw
    >>> float(lw.scan(lambda h, x: (h + x, None), 0.0, jnp.ones(6), memory=Halves())[0])
    6.0
    """

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        """The lengths of the segments, outermost first; `()` keeps everything."""
        ...


@dataclasses.dataclass(frozen=True)
class Save:
    """Keep all that the backward loop needs: the fastest, and the default. Short form: `"save"`.

    >>> Save().segments(LoopSizes(length=100, carry=8, stacked=0, measure_step=lambda: 32))
    ()
    """

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        return ()


@dataclasses.dataclass(frozen=True)
class Segments:
    """Keep the carry of every `steps`-th step, and recompute each step once. Short form: the int itself.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> def last(w):
    ...     return lw.scan(lambda h, _: (jnp.tanh(w * h), None), 1.0, length=100, memory=lw.loops.Segments(10))[0]
    >>> bool(jnp.isfinite(jax.grad(last)(0.9)))
    True
    """

    steps: int

    def __post_init__(self):
        if not _is_positive(self.steps):
            raise LoopError(f"Segments needs a number of steps from 1, not {self.steps!r}")

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        return () if self.steps >= loop.length else (self.steps,)


@dataclasses.dataclass(frozen=True)
class Sqrt:
    """`Segments` of the length that needs least memory, which grows with the square root of the number of steps.

    Short form: `"sqrt"`.

    >>> Sqrt().segments(LoopSizes(length=100, carry=8, stacked=0, measure_step=lambda: 8))
    (10,)
    """

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        return min(_single_level(loop.length), key=loop.needed, default=())


@dataclasses.dataclass(frozen=True)
class Nested:
    """16 segments, each of 16 segments, and so on: memory grows with the logarithm of the number of steps.

    Each level costs one more forward pass. (The xs of one outer segment, a sixteenth of all, are copied too.) Short
    form: `"nested"`.

    >>> Nested().segments(LoopSizes(length=10_000, carry=8, stacked=0, measure_step=lambda: 8))
    (625, 39, 2)
    """

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        found, length = [], loop.length
        while length > 2 * SEGMENTS_PER_LEVEL:
            length = length // SEGMENTS_PER_LEVEL
            found.append(length)
        return tuple(found)


@dataclasses.dataclass(frozen=True)
class Budget:
    """The policy with the least recomputation that needs at most `bytes`. Short form: `("budget", bytes)`.

    The budget is for what the loop itself needs, as estimated beforehand. If nothing fits, a LoopError says how much is
    needed.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> def last(w):
    ...     return lw.scan(lambda h, _: (jnp.tanh(w * h), None), 1.0, length=100, memory=lw.loops.Budget(10_000))[0]
    >>> bool(jnp.isfinite(jax.grad(last)(0.9)))
    True
    """

    bytes: int

    def __post_init__(self):
        if not _is_positive(self.bytes):
            raise LoopError(f"Budget needs a number of bytes from 1, not {self.bytes!r}")

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        candidates = [(), *_single_level(loop.length), Nested().segments(loop)]
        for segments in candidates:
            if loop.needed(segments) <= self.bytes:
                return segments
        least = min(map(loop.needed, candidates))
        raise LoopError(
            f"memory={self}: this loop of {loop.length} steps needs at least {least} bytes "
            f"({format_bytes(least)}) for its backward pass; give that much or shorten the loop"
        )


MemoryLike = MemoryPolicy | Literal["save", "sqrt", "nested"] | int | tuple[Literal["budget"], int]
_BY_NAME: dict[Any, MemoryPolicy] = {"save": Save(), "sqrt": Sqrt(), "nested": Nested()}


def policy_of(memory: Any) -> MemoryPolicy:
    """The policy that `memory=` names, or is."""
    if isinstance(memory, MemoryPolicy) and not isinstance(memory, type):
        if not isinstance(memory, Hashable):
            name = type(memory).__name__
            raise LoopError(
                f"expected a memory policy that is hashable, found {name}; make it a frozen dataclass"
            )
        return memory
    if isinstance(memory, str) and memory in _BY_NAME:
        return _BY_NAME[memory]
    if _is_positive(memory):
        return Segments(memory)
    if isinstance(memory, tuple) and len(memory) == 2 and memory[0] == "budget" and _is_positive(memory[1]):
        return Budget(memory[1])
    if memory == "binomial":
        raise LoopError("memory='binomial' is now called 'nested'; write memory='nested'")
    raise LoopError(
        "memory must be 'save', 'sqrt', 'nested', a number of steps from 1, ('budget', bytes) or a policy "
        f"such as Segments(10), not {memory!r}"
    )


def _is_positive(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _single_level(length: int) -> list[tuple[int, ...]]:
    """Longest segments first: fewer of them, and larger products inside."""
    return [(segment,) for segment in range(length - 1, 0, -1)]


def planned(policy: MemoryPolicy, loop: LoopSizes) -> tuple[int, ...]:
    """The policy's segments, checked: each must be shorter than the one around it."""
    segments = tuple(policy.segments(loop))
    lengths = [loop.length, *segments]
    if not all(
        _is_positive(inner) and inner < outer for outer, inner in zip(lengths, segments, strict=False)
    ):
        raise LoopError(
            f"memory={policy!r} must cut a loop of {loop.length} steps into shorter and shorter segments of at "
            f"least 1 step, not {segments}"
        )
    return segments


Run = Callable[[BoundLoop], list[Any]]


def in_segments(bound: BoundLoop, segments: tuple[int, ...], run: Run) -> list[Any]:
    """Run the loop by `run`, cut into segments of `segments[0]` steps, each cut into the rest of `segments`."""
    if not segments:
        return run(bound)
    loop, xs = bound.loop, bound.xs
    length = segments[0]
    count, rest = divmod(loop.length, length)
    whole = dataclasses.replace(loop, length=length)
    tail = dataclasses.replace(loop, length=rest)

    def segment(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        out = in_segments(BoundLoop(whole, bound.consts, carry, xs), segments[1:], run)
        return out[: loop.num_carry], out[loop.num_carry :]

    def whole_segments(carry: Any) -> tuple[Any, Any]:
        pieces = [x[: count * length].reshape(count, length, *x.shape[1:]) for x in xs]
        again = jax.checkpoint(segment, prevent_cse=False)
        carry, ys = jax.lax.scan(again, list(carry), pieces, length=count, reverse=loop.reverse)
        return carry, [y.reshape(count * length, *y.shape[2:]) for y in ys]

    def short_segment(carry: Any) -> tuple[Any, Any]:
        out = jax.checkpoint(lambda carry, xs: run(BoundLoop(tail, bound.consts, carry, xs)))(
            list(carry), [x[count * length :] for x in xs]
        )
        return out[: loop.num_carry], out[loop.num_carry :]

    if not rest:
        carry, ys = whole_segments(bound.init)
        return [*carry, *ys]
    if loop.reverse:
        carry, last = short_segment(bound.init)
        carry, first = whole_segments(carry)
    else:
        carry, first = whole_segments(bound.init)
        carry, last = short_segment(carry)
    return [*carry, *(jnp.concatenate(pair) for pair in zip(first, last, strict=True))]
