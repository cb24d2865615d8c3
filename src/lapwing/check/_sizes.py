"""The same program for another number of examples, or another length: the axes that differ are those of the examples
(or of the time), and the numbers in it that differ are made of their count. Traced from shapes; nothing is computed.
"""

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._influence import axes_of
from ._inner import inner_programs
from ._partition import is_array
from ._program import SHAPES, Program, read

# What one size may need and another not: a table of places that is cut to the length of a text.
_EXTRA = SHAPES | {"slice"}


@dataclass(frozen=True)
class Pair:
    """A program, and the same with another size of an axis; `twins` pairs their equations, by the id of ours."""

    program: Program
    other: Program
    size: int
    other_size: int
    twins: dict[int, core.JaxprEqn]

    def twin(self, eqn: core.JaxprEqn) -> core.JaxprEqn | None:
        return self.twins.get(id(eqn))

    @functools.cached_property
    def _variables(self) -> dict[core.Var, core.Var]:
        ours, theirs = self.program.closed.jaxpr, self.other.closed.jaxpr
        pairs = list(zip(ours.invars, theirs.invars, strict=True))
        for eqn in ours.eqns:
            if (twin := self.twin(eqn)) is not None:
                pairs += zip(eqn.outvars, twin.outvars, strict=True)
        return dict(pairs)

    def axes(self, atom: Any) -> tuple[int, ...]:
        """The axes of a value that have the size that changed."""
        twin = self._variables.get(atom) if isinstance(atom, core.Var) else None
        if twin is None:
            return ()
        shapes = zip(jaxprs.shape(atom), jaxprs.shape(twin), strict=True)
        return tuple(axis for axis, (ours, theirs) in enumerate(shapes) if ours != theirs)

    def inner(self) -> list["Pair"]:
        """The loops inside, body by body."""
        bodies = list(zip(inner_programs(self.program), inner_programs(self.other), strict=False))
        pairs = (_paired(one.program, two.program, self.size, self.other_size) for one, two in bodies)
        return [pair for pair in pairs if pair is not None]


def _paired(program: Program, other: Program, size: int, other_size: int) -> Pair | None:
    """None if it is another program, not only another shape."""
    ours, theirs = ([eqn.primitive.name for eqn in each.eqns] for each in (program, other))
    blocks = [(0, 0, len(ours))]
    if ours != theirs:
        matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
        for kind, a, b, c, d in matcher.get_opcodes():
            if kind != "equal" and not set(ours[a:b] + theirs[c:d]) <= _EXTRA:
                return None
        blocks = matcher.get_matching_blocks()
    places = [(a + n, b + n) for a, b, count in blocks for n in range(count)]
    twins = {id(program.eqns[a]): other.eqns[b] for a, b in places}
    return Pair(program, other, size, other_size, twins)


def resized(function: Callable[..., Any], size: Callable[[int], int], axis: Any, **trees: Any) -> Pair | None:
    """`function` read for its trees, and for a `batch` of another size along `axis` (an int or a prefix tree of ints).

    None if it is another program then, or takes no other size.

    >>> pair = resized(lambda batch: jnp.mean(batch ** 2), lambda n: 2 * n, 0, batch=jnp.ones((4, 3)))
    >>> [pair.axes(eqn.outvars[0]) for eqn in pair.program.eqns]
    [(0,), (), ()]
    """
    program = read(function, **trees)
    leaves, structure = jax.tree.flatten(trees["batch"])
    try:
        axes = axes_of(axis, trees["batch"], "batch_axis")
        sizes = {
            np.shape(leaf)[at]
            for leaf, at in zip(leaves, axes, strict=True)
            if at is not None and _is_sized(leaf)
        }
        now = max(sizes)
        more = size(now) - now

        def shape(leaf: Any, axis: int | None) -> Any:
            if axis is None or not _is_sized(leaf):
                return leaf
            # A leaf may be longer by one: tokens of which inputs and labels are made.
            here = np.shape(leaf)[axis]
            there = here + more if now - here <= 1 else size(here)
            of = tuple(there if place == axis else each for place, each in enumerate(np.shape(leaf)))
            return jax.ShapeDtypeStruct(of, jnp.result_type(leaf))

        batch = jax.tree.unflatten(structure, [shape(*pair) for pair in zip(leaves, axes, strict=True)])
        other = read(function, **{**trees, "batch": batch})
    except Exception:
        return None
    return _paired(program, other, now, now + more)


def _is_sized(leaf: Any) -> bool:
    return is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def doubled(function: Callable[..., Any], batch_axis: Any, **trees: Any) -> Pair | None:
    """The same with twice as many examples."""
    return resized(function, lambda size: 2 * size, batch_axis, **trees)
