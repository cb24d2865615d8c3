"""Arrays of a loop as (rows, parts, units), the form in which blocks share them out, and back."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lapwing import jaxprs
from lapwing.jaxprs import shape
from lapwing.loops.persistent._axes import HEAD, INNER, ONE, PART, UNITS, Product
from lapwing.loops.persistent._stages import Stages


def to_tiles(stages: Stages, var: jaxprs.Atom, value: jax.Array, leading: int = 0) -> jax.Array:
    """(…, rows, parts, units), with `leading` axes left in front; what has no rows or units is repeated.

    A scalar (`Stages.is_scalar`) is (…, parts).
    """
    front = value.shape[:leading]
    lengths, meanings = _apart(stages, var)
    order = _canonical(meanings)
    apart = jnp.reshape(value, (*front, *lengths))
    value = apart.transpose((*range(leading), *(leading + axis for axis in order)))
    parts = math.prod(stages.parts(var))
    if stages.is_scalar(var):
        return jnp.reshape(value, (*front, parts))
    rows, units = _own_lengths(stages, meanings)
    value = value.reshape(*front, *rows, parts, units)
    value = jnp.broadcast_to(value, (*front, *stages.rows, parts, stages.units))
    return value.reshape(*front, math.prod(stages.rows), parts, stages.units)


def from_tiles(stages: Stages, var: jaxprs.Atom, value: jax.Array, leading: int = 0) -> jax.Array:
    """The array of which `to_tiles` made tiles."""
    front = value.shape[:leading]
    lengths, meanings = _apart(stages, var)
    if not stages.is_scalar(var):
        rows, units = _own_lengths(stages, meanings)
        value = value.reshape(*front, *stages.rows, *value.shape[leading + 1 :])
        kept = [slice(None)] * leading + [slice(length) for length in rows]
        value = value[(*kept, slice(None), slice(units))]
    order = _canonical(meanings)
    back = [leading + order.index(axis) for axis in range(len(order))]
    ordered = jnp.reshape(value, (*front, *(lengths[axis] for axis in order)))
    return jnp.reshape(ordered.transpose((*range(leading), *back)), (*front, *shape(var)))


def _apart(stages: Stages, var: jaxprs.Atom) -> tuple[list[int], list[str]]:
    """The lengths and meanings of a value's axes, with several parts of units as two axes."""
    lengths, meanings = [], []
    for meaning, length, parts in zip(stages.axes.of(var), shape(var), stages.parts(var), strict=True):
        if meaning in (UNITS, INNER):
            lengths += [parts, length // parts]
            meanings += [PART, meaning]
        else:
            lengths.append(length)
            meanings.append(meaning)
    return lengths, meanings


def _own_lengths(stages: Stages, meanings: Sequence[str]) -> tuple[list[int], int]:
    """The lengths of a value's rows, and how many units it has: 1 where it has none."""
    named = zip(stages.axes.rows(), stages.rows, strict=True)
    rows = [length if name in meanings else 1 for name, length in named]
    return rows, stages.units if {UNITS, INNER} & set(meanings) else 1


def weight_tiles(stages: Stages, product: Product, weight: jax.Array) -> jax.Array:
    """A weight as (heads, value's parts, value's units, result's parts, result's units), units per head."""
    order = (*product.weight_head, *product.weight_contracted, *product.new)
    heads = stages.heads if product.head else 1
    each = stages.units // heads
    return weight.transpose(order).reshape(heads, -1, each, _parts_of_result(stages, product), each)


def _parts_of_result(stages: Stages, product: Product) -> int:
    return math.prod(stages.parts(product.out))


def _canonical(meanings: Sequence[str]) -> list[int]:
    """The axes in the order rows, parts, heads, units."""
    last = {PART: 1, ONE: 1, HEAD: 2, UNITS: 3, INNER: 3}

    def place(axis: int) -> tuple[int, str, int]:
        meaning = meanings[axis]
        return (last[meaning], "", axis) if meaning in last else (0, meaning, axis)

    return sorted(range(len(meanings)), key=place)
