"""What each axis of a step's values is: rows (the batch), units, parts or heads.

A kernel gives each block of the GPU some rows and some units, and the block computes all that belongs to them. So every
axis must have a meaning. It comes from the products with a weight: the axis that they contract holds the units, the
others are rows. And it spreads through all other equations: what meets elementwise has the same axes.

- `row 0`, `row 1`, …: the axes of the batch, which no equation mixes.
- `units`: all units, once (D) or several times (k·D: the gates of an LSTM are 4 parts of one width).
- `part`: an axis that numbers such parts, as in (batch, gate, unit).
- `head` and `inner`: units as two axes, of which a product contracts the second for each of the first. Of those inside
  a head there may be several parts, too.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import shape

UNITS, PART, HEAD, INNER, ONE, UNKNOWN = "units", "part", "head", "inner", "one", "unknown"
Axis = tuple[core.Var, int]


class DoesNotFitError(Exception):
    """Why a loop cannot be one kernel, with the line that is to blame, where there is one."""

    def __init__(self, why: str, eqn: core.JaxprEqn | None = None) -> None:
        super().__init__(why if eqn is None else f"{why} ({jaxprs.file_and_line(eqn)})")
        self.eqn = eqn


@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """A value of a step times a weight that does not change. Axes are numbers of axes."""

    eqn: core.JaxprEqn
    value: jaxprs.Atom
    weight: core.Var
    contracted: tuple[int, ...]
    """Of the value; those of the weight are in the same order."""
    weight_contracted: tuple[int, ...]
    head: tuple[int, ...]
    weight_head: tuple[int, ...]
    weight_first: bool

    @property
    def out(self) -> core.Var:
        return self.eqn.outvars[0]

    @property
    def units(self) -> str:
        """What the axis of units means, of the value and of the result."""
        return INNER if self.head else UNITS

    @property
    def rows(self) -> list[int]:
        """The axes of the value that are rows."""
        return _others(self.value, (*self.contracted, *self.head))

    @property
    def new(self) -> list[int]:
        """The axes of the weight that the result has."""
        return _others(self.weight, (*self.weight_contracted, *self.weight_head))

    @property
    def out_rows(self) -> list[int]:
        first = len(self.head) + (len(self.new) if self.weight_first else 0)
        return list(range(first, first + len(self.rows)))

    @property
    def out_new(self) -> list[int]:
        return _others(self.out, (*range(len(self.head)), *self.out_rows))


def products_of(loop: jaxprs.Loop) -> list[Product]:
    """The products of a step, all with a constant of the loop."""
    return [_product_of(eqn, loop.consts) for eqn in loop.eqns if eqn.primitive is p.dot_general_p]


def _product_of(eqn: core.JaxprEqn, consts: Sequence[core.Var]) -> Product:
    (left, right), (left_head, right_head) = eqn.params["dimension_numbers"]
    first, second = eqn.invars
    if isinstance(second, core.Var) and second in consts:
        return Product(eqn, first, second, left, right, left_head, right_head, weight_first=False)
    if isinstance(first, core.Var) and first in consts:
        return Product(eqn, second, first, right, left, right_head, left_head, weight_first=True)
    raise DoesNotFitError("a product of two values that change from step to step", eqn)


def meanings(loop: jaxprs.Loop, products: Sequence[Product]) -> tuple["Axes", list[Product]]:
    """The meaning of every axis in a step, and its products, each with the units as the last axis it contracts."""
    axes = Axes()
    for before, after in zip(loop.carry, loop.carry_out, strict=True):
        axes.are_same(before, after)
    others = [eqn for eqn in loop.eqns if eqn.primitive is not p.dot_general_p]
    for eqn in others:
        _SPREAD.get(eqn.primitive.name, _elementwise)(axes, eqn)
    for product in products:
        _product(axes, product)
    products = [_units_last(axes, product) for product in products]
    for product in products:
        for axis, meaning in zip(
            reversed(product.contracted), (product.units, *[PART] * len(product.contracted)), strict=False
        ):
            axes.mean(product.value, axis, meaning)
    reshapes = [eqn for eqn in others if eqn.primitive is p.reshape_p]
    while any(_through_reshape(axes, eqn) for eqn in reshapes):
        pass
    return axes, products


class Axes:
    """Axes that must be the same are one class, and a class has one meaning."""

    def __init__(self) -> None:
        self._parent: dict[Axis, Axis] = {}
        self._meaning: dict[Axis, str] = {}

    def of(self, atom: jaxprs.Atom) -> tuple[str, ...]:
        """The meaning of each axis."""
        return tuple(self.meaning(atom, axis) for axis in range(len(shape(atom))))

    def meaning(self, atom: jaxprs.Atom, axis: int) -> str:
        if shape(atom)[axis] == 1:
            return ONE
        return self._meaning.get(self._find((atom, axis)), UNKNOWN) if isinstance(atom, core.Var) else UNKNOWN

    def rows(self) -> list[str]:
        return sorted({meaning for meaning in self._meaning.values() if meaning.startswith("row")})

    def same(self, one: jaxprs.Atom, axis: int, other: jaxprs.Atom, other_axis: int) -> bool:
        """Make two axes one class, unless one is of length 1; whether this is new."""
        if not (isinstance(one, core.Var) and isinstance(other, core.Var)):
            return False
        if 1 in (shape(one)[axis], shape(other)[other_axis]):
            return False
        a, b = self._find((one, axis)), self._find((other, other_axis))
        if a == b:
            return False
        self._parent[a] = b
        if (known := self._meaning.pop(a, None)) is not None:
            self._set(b, known)
        return True

    def are_same(self, one: jaxprs.Atom, other: jaxprs.Atom) -> None:
        """All axes of one are those of the other, from the last; the shorter one has fewer."""
        for axis in range(1, 1 + min(len(shape(one)), len(shape(other)))):
            self.same(one, len(shape(one)) - axis, other, len(shape(other)) - axis)

    def mean(self, atom: jaxprs.Atom, axis: int, meaning: str) -> bool:
        """Give an axis its meaning; whether this is new."""
        if not isinstance(atom, core.Var) or shape(atom)[axis] == 1:
            return False
        found = self._find((atom, axis))
        return self._meaning.get(found) != meaning and self._set(found, meaning)

    def _set(self, found: Axis, meaning: str) -> bool:
        if self._meaning.setdefault(found, meaning) != meaning:
            raise DoesNotFitError(f"an axis is both {self._meaning[found]} and {meaning}")
        return True

    def _find(self, axis: Axis) -> Axis:
        while (parent := self._parent.get(axis, axis)) != axis:
            axis = parent
        return axis


# How meanings spread ------------------------------------------------------------------------------------------


def _units_last(axes: Axes, product: Product) -> Product:
    """A product may contract parts and units in any order."""
    order = sorted(
        range(len(product.contracted)),
        key=lambda i: axes.meaning(product.value, product.contracted[i]) == product.units,
    )
    return dataclasses.replace(
        product,
        contracted=tuple(product.contracted[i] for i in order),
        weight_contracted=tuple(product.weight_contracted[i] for i in order),
    )


def _product(axes: Axes, product: Product) -> None:
    if len(product.head) > 1 or not product.new or not product.contracted:
        raise DoesNotFitError(
            "a product that is not one of rows with a matrix, or with a matrix for each head", product.eqn
        )
    for axis in product.head:
        axes.mean(product.value, axis, HEAD)
        axes.mean(product.out, 0, HEAD)
    for number, (axis, out_axis) in enumerate(zip(product.rows, product.out_rows, strict=True)):
        axes.mean(product.value, axis, f"row {number}")
        axes.mean(product.out, out_axis, f"row {number}")
    *parts, last = product.out_new
    axes.mean(product.out, last, product.units)
    for axis in parts:
        axes.mean(product.out, axis, PART)
    if len(product.contracted) == 1:
        axes.mean(product.value, product.contracted[0], product.units)


def _elementwise(axes: Axes, eqn: core.JaxprEqn) -> None:
    for out in eqn.outvars:
        for value in eqn.invars:
            if shape(value):
                axes.are_same(value, out)


def _broadcast(axes: Axes, eqn: core.JaxprEqn) -> None:
    for axis, into in enumerate(eqn.params["broadcast_dimensions"]):
        axes.same(eqn.invars[0], axis, eqn.outvars[0], into)


def _transpose(axes: Axes, eqn: core.JaxprEqn) -> None:
    for into, axis in enumerate(eqn.params["permutation"]):
        axes.same(eqn.invars[0], axis, eqn.outvars[0], into)


def _reduce(axes: Axes, eqn: core.JaxprEqn) -> None:
    kept = [axis for axis in range(len(shape(eqn.invars[0]))) if axis not in eqn.params["axes"]]
    for into, axis in enumerate(kept):
        axes.same(eqn.invars[0], axis, eqn.outvars[0], into)


def _reshape(axes: Axes, eqn: core.JaxprEqn) -> None:
    """Axes that a reshape leaves as they are."""
    for before, after in _groups(shape(eqn.invars[0]), shape(eqn.outvars[0])):
        if len(before) == len(after) == 1:
            axes.same(eqn.invars[0], before[0], eqn.outvars[0], after[0])


def _through_reshape(axes: Axes, eqn: core.JaxprEqn) -> bool:
    """Units written as several axes: parts and units, or parts, heads and inner units. Whether this is new."""
    news = False
    for before, after in _groups(shape(eqn.invars[0]), shape(eqn.outvars[0])):
        if len(before) > 1 and len(after) == 1:
            news |= _split_units(axes, eqn.invars[0], before, eqn.outvars[0], after[0])
        elif len(before) == 1 and len(after) > 1:
            news |= _split_units(axes, eqn.outvars[0], after, eqn.invars[0], before[0])
        elif len(before) > 1:
            raise DoesNotFitError("a reshape mixes axes", eqn)
    return news


def _split_units(axes: Axes, split: jaxprs.Atom, many: Sequence[int], whole: jaxprs.Atom, one: int) -> bool:
    meaning, last = axes.meaning(whole, one), axes.meaning(split, many[-1])
    if last == INNER and axes.meaning(split, many[-2]) == HEAD:
        news = axes.mean(whole, one, UNITS)
        parts = many[:-2]
    elif {meaning, last} & {UNITS, INNER}:
        news = axes.same(split, many[-1], whole, one)
        parts = many[:-1]
    else:
        return False
    return any([news, *(axes.mean(split, axis, PART) for axis in parts)])


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The axes of two shapes, longer than 1, in the smallest groups of the same size."""
    left = [axis for axis, length in enumerate(before) if length > 1]
    right = [axis for axis, length in enumerate(after) if length > 1]
    while left and right:
        a, b = [left.pop(0)], [right.pop(0)]
        while (one := _size(before, a)) != (other := _size(after, b)):
            if one < other:
                a.append(left.pop(0))
            else:
                b.append(right.pop(0))
        yield a, b


def _size(lengths: Sequence[int], axes: Iterable[int]) -> int:
    return math.prod(lengths[axis] for axis in axes)


# By name, since not all of them have a public one.
_SPREAD = {
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "reduce_sum": _reduce,
    "reduce_max": _reduce,
    "reduce_min": _reduce,
}


def _others(atom: jaxprs.Atom, axes: Iterable[int]) -> list[int]:
    return [axis for axis in range(len(shape(atom))) if axis not in set(axes)]
