"""A step as stages: what a block computes of its own units, and what it must then know of the others' units.

A product needs all units of its value; so does a sum over units. The values that they need are published, all blocks
wait for each other (an exchange), and then each computes its own columns. What lies between two exchanges is
elementwise, on parts of one width, so that a block needs nothing but its own units. An LSTM has one exchange a step.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from jax import lax
from jax.extend import core

from lapwing import jaxprs
from lapwing.jaxprs import Loop, shape
from lapwing.loops.persistent._axes import (
    HEAD,
    INNER,
    ONE,
    PART,
    UNITS,
    UNKNOWN,
    Axes,
    DoesNotFitError,
    Product,
    meanings,
    products_of,
)

ELEMENTWISE = frozenset(
    {
        "abs", "add", "add_any", "and", "clamp", "convert_element_type", "copy", "copy_p", "cos", "div", "eq", "erf",
        "exp", "exp2", "expm1", "ge", "gt", "integer_pow", "le", "log", "log1p", "logistic", "lt", "max",
        "min", "mul", "name", "ne", "neg", "not", "one_minus_square", "or", "rsqrt", "select_n", "sign", "sin",
        "sqrt", "square", "stop_gradient", "sub", "tanh", "xor",
    }
)  # fmt: skip
MOVES = frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "expand_dims",
        "pad",
        "reshape",
        "slice",
        "split",
        "squeeze",
        "transpose",
    }
)
REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})
FLOATS = frozenset({"bfloat16", "float16", "float32"})
DTYPES = FLOATS | {"bool", "int32"}
# Precisions that the tensor cores have: TF32 for float32. Halves are multiplied exactly, and summed in float32.
TF32 = frozenset(
    {None, lax.Precision.DEFAULT, lax.DotAlgorithmPreset.DEFAULT, lax.DotAlgorithmPreset.TF32_TF32_F32}
)
HALF = frozenset({None, *lax.Precision, lax.DotAlgorithmPreset.DEFAULT})


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """Equations on a block's own units; then an exchange, and the products and sums over units that need it."""

    eqns: tuple[core.JaxprEqn, ...]
    products: tuple[Product, ...]
    sums: tuple[core.JaxprEqn, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Stages:
    """A loop that can be one kernel."""

    loop: Loop
    axes: Axes
    rows: tuple[int, ...]
    """The lengths of the axes of the batch."""
    units: int
    heads: int
    stages: tuple[Stage, ...]

    @property
    def products(self) -> list[Product]:
        return [product for stage in self.stages for product in stage.products]

    @property
    def consts(self) -> list[core.Var]:
        """The constants that are read, and are no weights."""
        weights = {product.weight for product in self.products}
        return [var for var in self._read(self.loop.consts) if var not in weights]

    @property
    def xs(self) -> list[core.Var]:
        """Those that are read."""
        return self._read(self.loop.xs)

    def _read(self, given: Sequence[core.Var]) -> list[core.Var]:
        read = set(jaxprs.reads(self.loop.eqns, self.loop.jaxpr.outvars))
        return [var for var in given if var in read]

    @property
    def exchanges(self) -> int:
        return sum(1 for stage in self.stages if stage.products or stage.sums)

    @property
    def floats(self) -> set[str]:
        """The floating-point types in a step."""
        atoms = [*self.loop.jaxpr.invars, *(var for eqn in self.loop.eqns for var in eqn.outvars)]
        return {str(jaxprs.dtype(atom)) for atom in atoms} & FLOATS

    @property
    def apart(self) -> bool:
        """Whether no head needs anything of another one."""
        return self.heads > 1 and all(
            not stage.sums and all(product.head for product in stage.products) for stage in self.stages
        )

    def parts(self, atom: jaxprs.Atom) -> tuple[int, ...]:
        """How many parts a value has, along each of its axes."""
        one = {PART: 1, UNITS: self.units, INNER: self.units // self.heads}
        lengths = zip(self.axes.of(atom), shape(atom), strict=True)
        return tuple(length // one.get(meaning, length) for meaning, length in lengths)

    def is_scalar(self, atom: jaxprs.Atom) -> bool:
        """Whether a value is one number for all rows and units."""
        return all(meaning in (ONE, PART) for meaning in self.axes.of(atom))


def stages_of(loop: Loop) -> Stages:
    """Split the step of a loop, in which nothing is called and no equation is of constants alone.

    Raises DoesNotFitError if it cannot be one kernel.
    """
    for eqn in loop.eqns:
        _check_known(eqn)
    check_types([*loop.jaxpr.invars, *(var for eqn in loop.eqns for var in eqn.outvars)])
    products = products_of(loop)
    if not products:
        raise DoesNotFitError("it has no product with a weight that stays the same")
    axes, products = meanings(loop, products)
    units, heads = _units(loop, axes)
    weights = {product.weight for product in products}
    for eqn in loop.eqns:
        _check_axes(eqn, axes, weights)
    for eqn in loop.eqns:
        _check_parts(eqn, axes, units)
    for product in products:
        _check_weight(product, loop)
    if any(UNKNOWN in axes.of(atom) for atom in loop.jaxpr.outvars):
        raise DoesNotFitError("it carries or returns what belongs to no product")
    stages = Stages(loop, axes, _rows(loop, axes), units, heads, _by_exchange(loop, axes, products))
    _check_outputs(stages)
    return stages


def check_types(atoms: Iterable[jaxprs.Atom]) -> None:
    """Raises DoesNotFitError if a step holds what no kernel computes with."""
    for atom in atoms:
        if (kind := str(getattr(atom.aval, "dtype", atom.aval))) not in DTYPES:
            raise DoesNotFitError(f"a step holds {kind}")


def _check_known(eqn: core.JaxprEqn) -> None:
    name = eqn.primitive.name
    known = ELEMENTWISE | MOVES | REDUCTIONS | {"dot_general"}
    if name not in known or eqn.effects:
        raise DoesNotFitError(f"{name} is not elementwise, nor a product with a weight", eqn)
    if eqn.ctx.compute_type is not None:
        raise DoesNotFitError(f"{name} runs elsewhere: {eqn.ctx.compute_type}", eqn)


def _check_axes(eqn: core.JaxprEqn, axes: Axes, weights: Iterable[core.Var]) -> None:
    for atom in [*eqn.invars, *eqn.outvars]:
        if UNKNOWN in axes.of(atom) and atom not in weights:
            raise DoesNotFitError(f"an axis of {shape(atom)} belongs to no product", eqn)


def _check_parts(eqn: core.JaxprEqn, axes: Axes, units: int) -> None:
    """What cuts or joins must do so between parts, and sums must be over units or parts."""
    name = eqn.primitive.name
    if name in REDUCTIONS:
        over = {axes.meaning(eqn.invars[0], axis) for axis in eqn.params["axes"]} - {ONE}
        if not (over == {UNITS} or over == {HEAD, INNER} or over <= {PART}):
            raise DoesNotFitError(f"{name} is over {' and '.join(sorted(over))}", eqn)
    for axis in _cut(eqn):
        found = {axes.meaning(atom, axis) for atom in [*eqn.invars, *eqn.outvars] if shape(atom)} - {ONE}
        if not found <= {UNITS, INNER, PART}:
            raise DoesNotFitError(f"{name} cuts or joins {' and '.join(sorted(found))}", eqn)


def _cut(eqn: core.JaxprEqn) -> list[int]:
    """The axes along which an equation cuts or joins."""
    match eqn.primitive.name:
        case "concatenate":
            return [eqn.params["dimension"]]
        case "split":
            return [eqn.params["axis"]]
        case "slice" | "pad":
            before, after = shape(eqn.invars[0]), shape(eqn.outvars[0])
            return [axis for axis in range(len(before)) if before[axis] != after[axis]]
    return []


def _check_weight(product: Product, loop: Loop) -> None:
    types = {str(jaxprs.dtype(atom)) for atom in product.eqn.invars}
    if len(types) > 1 or not types <= FLOATS:
        raise DoesNotFitError(f"a product of {' and '.join(sorted(types))}", product.eqn)
    asked = product.eqn.params["precision"]
    for precision in asked if isinstance(asked, tuple) else (asked,):
        if precision not in (TF32 if types == {"float32"} else HALF):
            raise DoesNotFitError(f"a product of {types.pop()} with precision {precision.name}", product.eqn)
    if product.value in loop.consts:
        raise DoesNotFitError("a product of two constants", product.eqn)


def _check_outputs(stages: Stages) -> None:
    """What is one number for all blocks must be known to each of them, and a sum over units is a row's. No block is the
    one to store such a number in every step."""
    loop = stages.loop
    summed = [var for stage in stages.stages for eqn in stage.sums for var in eqn.outvars]
    found = jaxprs.depends_on(loop.eqns, summed)
    for eqn in loop.eqns:
        if any(var in found and stages.is_scalar(var) for var in eqn.outvars if var in loop.jaxpr.outvars):
            raise DoesNotFitError("it carries or returns one number that is a sum over units", eqn)
    for var in loop.ys:
        if stages.is_scalar(var):
            made = next((eqn for eqn in loop.eqns if var in eqn.outvars), None)
            raise DoesNotFitError("it returns one number for all rows and units in every step", made)


def _units(loop: Loop, axes: Axes) -> tuple[int, int]:
    """The units, and how many heads they form: the largest width of which all others are multiples."""
    atoms = [*loop.jaxpr.invars, *(var for eqn in loop.eqns for var in eqn.outvars)]
    lengths: dict[str, set[int]] = {HEAD: set(), INNER: set(), UNITS: set()}
    for atom in atoms:
        for meaning, length in zip(axes.of(atom), shape(atom), strict=True):
            if meaning in lengths:
                lengths[meaning].add(length)
    for eqn in loop.eqns:
        for axis in _cut(eqn):
            lengths.get(axes.meaning(eqn.outvars[0], axis), set()).update(_offsets(eqn, axis))
    if not lengths[HEAD]:
        return math.gcd(*lengths[UNITS]), 1
    (heads,) = lengths[HEAD]
    units = heads * math.gcd(*lengths[INNER])
    if any(width % units for width in lengths[UNITS]):
        raise DoesNotFitError(f"widths that are no multiples of {heads} heads' {units} units")
    return units, heads


def _offsets(eqn: core.JaxprEqn, axis: int) -> list[int]:
    """Where a slice or a pad cuts."""
    if eqn.primitive.name == "slice":
        strides = eqn.params["strides"]
        if strides is not None and strides[axis] != 1:
            raise DoesNotFitError("a slice with steps", eqn)
        return [eqn.params["start_indices"][axis], eqn.params["limit_indices"][axis]]
    if eqn.primitive.name == "pad":
        before, after, between = eqn.params["padding_config"][axis]
        if min(before, after) < 0 or between:
            raise DoesNotFitError("a pad that also cuts", eqn)
        return [before, after]
    return []


def _rows(loop: Loop, axes: Axes) -> tuple[int, ...]:
    lengths: dict[str, set[int]] = {name: set() for name in axes.rows()}
    for atom in [*loop.jaxpr.invars, *(var for eqn in loop.eqns for var in eqn.outvars)]:
        for meaning, length in zip(axes.of(atom), shape(atom), strict=True):
            if meaning in lengths:
                lengths[meaning].add(length)
    if any(len(found) > 1 for found in lengths.values()):
        raise DoesNotFitError("a step cuts or joins rows")
    return tuple(found.pop() for found in lengths.values() if found)


def _by_exchange(loop: Loop, axes: Axes, products: Sequence[Product]) -> tuple[Stage, ...]:
    """Each equation in the first stage in which its inputs are there."""
    by_eqn = {id(product.eqn): product for product in products}
    level: dict[core.Var, int] = {}
    stages: list[tuple[list, list, list]] = [([], [], [])]
    for eqn in loop.eqns:
        at = max((level.get(var, 0) for var in jaxprs.variables(eqn.invars)), default=0)
        while len(stages) <= at + 1:
            stages.append(([], [], []))
        if id(eqn) in by_eqn:
            stages[at][1].append(by_eqn[id(eqn)])
            at += 1
        elif _is_exchanged(eqn, axes):
            stages[at][2].append(eqn)
            at += 1
        else:
            stages[at][0].append(eqn)
        level.update(dict.fromkeys(eqn.outvars, at))
    return tuple(Stage(*map(tuple, stage)) for stage in stages if any(stage))


def _is_exchanged(eqn: core.JaxprEqn, axes: Axes) -> bool:
    """Whether it sums over units, of which a block has only its own."""
    over = {axes.meaning(eqn.invars[0], axis) for axis in eqn.params.get("axes", ())}
    return eqn.primitive.name in REDUCTIONS and not over <= {PART, ONE}
