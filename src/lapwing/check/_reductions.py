"""Parts of a loss of which one is a mean over an axis and another a sum over it.

Their sum is a number that nobody means: the weight of the one against the other grows with the batch (or with the
length), and a divergence that is summed over all examples outweighs everything. Nothing raises. The program is read for
two sizes of the axis (`_sizes.py`), and for each value follows the power with which it grows with that size, as if all
examples were alike: a sum over the axis adds one, a division by the count takes one away, also by a count of what a
mask leaves. Where two parts of the loss are added, their powers must be the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail
from ._sizes import Pair

# What leaves the power as it is, and the entries of a sum its entries.
_LINEAR = SHAPES | {"neg", "real", "slice", "dynamic_slice", "pad", "sort", "gather"}
_SAME = frozenset(["reduce_max", "reduce_min", "abs", "clamp"])
_ADDS = frozenset(["add", "sub", "add_any"])
_CHOOSES = frozenset(["max", "min", "select_n", "concatenate"])
_PLAIN = frozenset(["eq", "ne", "lt", "gt", "le", "ge", "is_finite", "sign", "iota", "argmax", "argmin"])
_POWERS = {"sqrt": 0.5, "rsqrt": -0.5, "square": 2.0}
# What adds along an axis in another way than a sum.
_MIXES = ("cum", "scatter", "reduce_prod", "reduce_window", "segment")
_MOST_COMPUTED = 8  # Equations from which a count is made, as in n - 1.
_COMPARED = ({0.0, 1.0}, {0.0, 2.0})


@dataclass(frozen=True)
class Power:
    """How a value grows with the size of the axis. `spans`: it is a sum or mean over it, with nothing but factors
    since; `known` is False where the power cannot be said."""

    power: float = 0.0
    spans: bool = False
    known: bool = True


_UNKNOWN = Power(known=False)


def check_reductions(pair: Pair, what: str, across: Pair | None = None) -> int:
    """Raises if two parts that are added grow with different powers of the size; returns how many were compared.

    `across`, of another axis, says which numbers in the program are counts of that one.
    """
    reader, compared = _Reader(pair, across), 0
    for eqn in pair.program.eqns:
        if eqn.primitive.name in _ADDS and reader.are_parts(eqn):
            parts = [reader.of(atom) for atom in eqn.invars]
            compared += 1
            if all(each.known for each in parts) and {each.power for each in parts} in _COMPARED:
                _fail(eqn, pair, what, max(each.power for each in parts))
        reader.read(eqn)
    return compared


def _fail(eqn: core.JaxprEqn, pair: Pair, what: str, power: float) -> None:
    grows = f"the {'square of the ' if power == 2 else ''}number of {what}"
    fail(
        "numbers",
        f"two parts of the loss are added at {place(eqn)}, of which one is a sum over the {pair.size} {what}, and the "
        f"other is averaged over them: the weight of the sum scales with {grows}",
        "the axis of its sum or mean, and what it is divided by: take the mean over the same axes in both",
        [place(eqn)],
    )


class _Reader:
    """Follows the powers through a program, in its order."""

    def __init__(self, pair: Pair, across: Pair | None) -> None:
        self._pair, self._across = pair, across
        self._powers: dict[core.Var, Power] = {}
        program = pair.program
        self._both = program.dependent("params") & program.dependent("batch")
        self._any = program.dependent("params") | program.dependent("batch")
        self._places = {id(eqn): place for place, eqn in enumerate(program.eqns)}

    def of(self, atom: Any) -> Power:
        return self._powers.get(atom, Power()) if isinstance(atom, core.Var) else Power()

    def are_parts(self, eqn: core.JaxprEqn) -> bool:
        """Whether both operands are parts of the loss: at least one is a number for all examples together."""
        if not all(among(atom, self._both) for atom in eqn.invars):
            return False
        sources = [self._pair.program.source(atom) for atom in eqn.invars]
        has_total = any(jaxprs.size(each) == 1 and not self._pair.axes(each) for each in sources)
        # Along the time, a part may have no axis of it, as the divergence of a latent that stands for a whole text.
        return has_total and (self._across is None or all(self.of(atom).spans for atom in eqn.invars))

    def read(self, eqn: core.JaxprEqn) -> None:
        self._powers |= dict.fromkeys(eqn.outvars, self._made(eqn))

    def _made(self, eqn: core.JaxprEqn) -> Power:
        name, given = eqn.primitive.name, [self.of(atom) for atom in eqn.invars]
        if name in _PLAIN or name.startswith("random_"):
            return Power()
        if not all(each.known for each in given):
            return _UNKNOWN
        if name in ("mul", "div"):
            return self._product(eqn, *given, sign=1 if name == "mul" else -1)
        if name in _ADDS or name in _CHOOSES:
            return self._sum(eqn, given)
        if name == "reduce_sum":
            summed = self._summed(eqn, eqn.params["axes"])
            return Power(given[0].power + summed, given[0].spans or summed > 0)
        if name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            return Power(given[0].power + given[1].power + self._summed(eqn, contracted))
        if name in _LINEAR:
            return given[0]
        if name in _SAME:
            return Power(given[0].power)
        if name in _POWERS or name == "integer_pow":
            return Power(given[0].power * (_POWERS.get(name) or eqn.params["y"]))
        if name in ("log", "log1p"):
            return Power()  # Of a sum, it grows by a constant.
        return self._other(eqn, given)

    def _other(self, eqn: core.JaxprEqn, given: Sequence[Power]) -> Power:
        """Anything else, loops among it, has no power if what it reads has none and it adds nothing up."""
        twin = self._pair.twin(eqn)
        is_long = twin is not None and eqn.params.get("length") != twin.params.get("length")
        mixes = eqn.primitive.name.startswith(_MIXES) and any(map(self._pair.axes, eqn.invars))
        return _UNKNOWN if is_long or mixes or any(each.power for each in given) else Power()

    def _product(self, eqn: core.JaxprEqn, one: Power, two: Power, sign: int) -> Power:
        written = self._count(eqn, 0) + sign * self._count(eqn, 1)
        power = one.power + sign * two.power + written
        if not written and self._is_divided_by_size(eqn, power, sign):
            power -= 1
        return Power(power, one.spans or (two.spans and sign > 0))

    def _count(self, eqn: core.JaxprEqn, at: int) -> float:
        """The power with which a number that is written in the program grows."""
        ours, theirs = _written(self._pair, eqn, at)
        if ours is None or theirs is None or ours == theirs or ours * theirs <= 0:
            return 0.0
        ratio = math.log(theirs / ours) / math.log(self._pair.other_size / self._pair.size)
        return round(2 * ratio) / 2

    def _is_divided_by_size(self, eqn: core.JaxprEqn, power: float, sign: int) -> bool:
        """Whether a sum over the axis is divided by its size as a constant, such as the batch size of a config: by a
        multiple of it, or multiplied by exactly its inverse (0.001 is one thousandth, and not a size)."""
        if power < 1:
            return False
        for at in (0, 1) if sign > 0 else (1,):
            number = _number(self._pair.program, eqn.invars[at])
            if not number or (self._across is not None and self._is_count_of_other(eqn, at)):
                continue
            times = (number if sign < 0 else 1 / number) / self._pair.size
            if abs(times - (round(times) if sign < 0 else 1)) < 1e-5 and times > 0.99:
                return True
        return False

    def _is_count_of_other(self, eqn: core.JaxprEqn, at: int) -> bool:
        assert self._across is not None
        ours, theirs = (
            each.eqns[self._places[id(eqn)]] for each in (self._across.program, self._across.other)
        )
        return _number(self._across.program, ours.invars[at]) != _number(
            self._across.other, theirs.invars[at]
        )

    def _sum(self, eqn: core.JaxprEqn, given: Sequence[Power]) -> Power:
        """The largest power of the operands that depend on most; a constant has no say."""
        operands = list(zip(eqn.invars, given, strict=True))[eqn.primitive.name == "select_n" :]
        for variables in (self._both, self._any):
            powers = [power for atom, power in operands if among(atom, variables)]
            if powers:
                break
        else:
            powers = [power for _, power in operands]
        return Power(max(each.power for each in powers), any(each.spans for each in powers))

    def _summed(self, eqn: core.JaxprEqn, axes: Sequence[int]) -> int:
        return sum(axis in axes for axis in self._pair.axes(eqn.invars[0]))


def _written(pair: Pair, eqn: core.JaxprEqn, at: int) -> tuple[float | None, float | None]:
    """An operand that is a number of the program, for both sizes."""
    twin = pair.twin(eqn)
    theirs = None if twin is None else _number(pair.other, twin.invars[at])
    return _number(pair.program, eqn.invars[at]), theirs


def _number(program: Program, atom: Any) -> float | None:
    """A number that is written in the program, or computed from such numbers alone."""
    if jaxprs.size(atom) != 1 or not jnp.issubdtype(jaxprs.dtype(atom), jnp.number):
        return None
    if isinstance(atom, core.Literal):
        return float(np.asarray(atom.val, np.float64).reshape(()))
    jaxpr = program.closed.jaxpr
    eqns = jaxprs.needed(jaxpr.eqns, [atom])
    inputs = jaxprs.reads(eqns, [atom])
    if len(eqns) > _MOST_COMPUTED or not set(inputs) <= set(jaxpr.constvars):
        return None
    values = [program.closed.consts[jaxpr.constvars.index(var)] for var in inputs]
    (value,) = jaxprs.interpret(jaxprs.part(jaxpr, eqns, inputs, [atom]), values)
    return float(np.asarray(value, np.float64).reshape(()))
