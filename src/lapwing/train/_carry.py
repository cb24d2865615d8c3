"""What a call of the device passes to the next: the state of a run and the metrics of its latest steps, in few arrays.

On a GPU each array that a call takes or returns costs the host about 4 µs (an H200: a step of 84 µs spent half of that
on scalars and random keys), so leaves of few numbers are packed into one array for each dtype. Larger ones are not:
a matrix product would have to copy its operand out of the pack. On a CPU nothing is packed, since it gains nothing.

Metrics stay on the device too, as rows of a log, and are fetched many steps at a time: one transfer to the host takes
longer than a small step.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_SMALL = 256  # Numbers in a leaf that is packed.


def _default_most() -> int:
    return 0 if jax.default_backend() == "cpu" else _SMALL


class Carry(NamedTuple):
    """`small` and `large` are the leaves of the state and the number of the next row in the log, see `Packing`; `log`
    is [rows, names], or [rows, runs, names]."""

    small: tuple[jax.Array, ...]
    large: tuple[jax.Array, ...]
    log: jax.Array


class Packing:
    """Packs trees like `like`: leaves of at most `most` numbers go into one array for each dtype.

    >>> packing = Packing({"a": jnp.ones(2), "b": jnp.zeros(()), "c": jnp.ones(900)}, most=256)
    >>> small, large = packing.pack({"a": jnp.ones(2), "b": jnp.zeros(()), "c": jnp.ones(900)})
    >>> small[0].tolist(), large[0].shape
    ([1.0, 1.0, 0.0], (900,))
    >>> packing.unpack(small, large)["a"].tolist()
    [1.0, 1.0]
    """

    def __init__(self, like: Any, most: int | None = None):
        most = _default_most() if most is None else most
        leaves, self._structure = jax.tree.flatten(like)
        self._shapes = [leaf.shape for leaf in leaves]
        by_dtype = defaultdict(list)
        for at, leaf in enumerate(leaves):
            if leaf.size <= most:
                by_dtype[leaf.dtype].append(at)
        self._groups = [group for group in by_dtype.values() if len(group) > 1]
        packed = {at for group in self._groups for at in group}
        self._large = [at for at in range(len(leaves)) if at not in packed]
        self._join = jax.jit(self._joined)
        self._split = jax.jit(self._splitted)

    def pack(self, tree: Any) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """The packed arrays, and the leaves that are not packed."""
        leaves = jax.tree.leaves(tree)
        small = self._join([[leaves[at] for at in group] for group in self._groups]) if self._groups else ()
        return tuple(small), tuple(leaves[at] for at in self._large)

    def unpack(self, small: Sequence[jax.Array], large: Sequence[jax.Array]) -> Any:
        """The tree. Its large leaves are those given: they are gone when a call donates them."""
        leaves: dict[int, jax.Array] = dict(zip(self._large, large, strict=True))
        if self._groups:
            for group, parts in zip(self._groups, self._split(small), strict=True):
                leaves |= zip(group, parts, strict=True)
        return jax.tree.unflatten(self._structure, [leaves[at] for at in range(len(leaves))])

    def _joined(self, groups: list[list[jax.Array]]) -> list[jax.Array]:
        return [jnp.concatenate([leaf.ravel() for leaf in group]) for group in groups]

    def _splitted(self, small: Sequence[jax.Array]) -> list[list[jax.Array]]:
        split = []
        for group, packed in zip(self._groups, small, strict=True):
            shapes = [self._shapes[at] for at in group]
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            starts = [0, *ends[:-1]]
            split.append(
                [
                    packed[start:end].reshape(shape)
                    for start, end, shape in zip(starts, ends, shapes, strict=True)
                ]
            )
        return split
