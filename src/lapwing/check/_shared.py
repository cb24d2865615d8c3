"""Random numbers that all examples of a batch share: one dropout mask, or one noise, in the place of one for each.

A key that is not split, a `jax.vmap` with `None` for the key, a mask of the shape of the weights: the loss is right in
expectation, and its gradient has the noise of a single example. The program is read for twice as many examples. Where
random numbers meet a value that has the axis of the examples, they should have it too; where they have it, their values
must differ along it.
"""

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import UNKNOWN, place
from ._keys import DRAWS, masks
from ._program import SHAPES, Program, among
from ._report import fail
from ._sizes import Pair

_MEETS = frozenset(["mul", "add", "sub", "div", "select_n", "max", "add_any"])
_ADDS = frozenset(["add", "sub", "add_any"])
_MOST_READ = 6


def check_shared(
    pair: Pair, trees: Sequence[Any] | None, made_of: Collection[str] = ("params", "batch")
) -> int:
    """Raises if all examples share random numbers; returns in how many places random numbers meet examples.

    **Arguments**

    - `pair`: the program of a loss that takes a key, and that for twice as many examples.
    - `trees`: its arguments, if they are arrays, with which the random numbers are computed.
    - `made_of`: random numbers count where they meet a value that depends on all of these.
    """
    met = list(_meetings(pair, made_of))
    for noise, eqn in met:
        if not _has_examples(pair, noise):
            _fail(noise, eqn, pair.program)
    if met and trees is not None:
        bare = [_bare(pair.program, noise) for noise, _ in met[:_MOST_READ]]
        values = pair.program.values(bare, *trees)
        for (noise, eqn), source, value in zip(met, bare, values, strict=False):
            if _repeats(np.asarray(value), pair.axes(source)):
                _fail(noise, eqn, pair.program)
    return len(met) + sum(check_shared(inner, None, made_of) for inner in pair.inner())


def _meetings(pair: Pair, made_of: Collection[str]) -> list[tuple[core.Var, core.JaxprEqn]]:
    """Where a value that is random and nothing else meets one with the axis of the examples."""
    program = pair.program
    if not all(name in program.inputs for name in made_of):
        return []
    drawn = [eqn for eqn in program.eqns if eqn.primitive.name in DRAWS]
    of_inputs = [program.dependent(name) for name in ("params", "batch") if name in program.inputs]
    random = jaxprs.depends_on(program.eqns, [eqn.outvars[0] for eqn in drawn]).difference(*of_inputs)
    values = set.intersection(*(program.dependent(name) for name in made_of))
    covered, found = masks(program) if drawn else {}, []
    for eqn in program.eqns:
        if eqn.primitive.name not in _MEETS:
            continue
        noises = [atom for atom in jaxprs.variables(eqn.invars) if atom in random]
        others = [atom for atom in eqn.invars if among(atom, values) and pair.axes(atom)]
        if not noises or not others:
            continue
        is_dropout = eqn.primitive.name in ("mul", "select_n", "div") and _is_mask(
            program, noises[0], covered
        )
        if (is_dropout or _is_added(program, eqn, values)) and _is_drawn_by_entry(program, noises[0]):
            found.append((noises[0], eqn))
    return found


def _is_added(program: Program, eqn: core.JaxprEqn, values: Collection[core.Var], depth: int = 4) -> bool:
    """Whether the noise is added to the value, at once or after it was scaled."""
    if eqn.primitive.name in _ADDS:
        return True
    if not depth or eqn.primitive.name not in (*SHAPES, "mul", "div"):
        return False
    readers = program.readers.get(eqn.outvars[0], [])
    return any(
        _is_added(program, each, values, depth - 1)
        for each in readers
        if each.primitive.name not in _ADDS or all(among(atom, values) for atom in each.invars)
    )


def _behind(program: Program, atom: Any) -> list[core.JaxprEqn]:
    """All equations that a value is made by."""
    waiting, found = [atom], {}
    while waiting:
        made = program.makers.get(waiting.pop())
        if made is not None and id(made) not in found:
            found[id(made)] = made
            waiting += jaxprs.variables(made.invars)
    return list(found.values())


def _is_mask(program: Program, noise: core.Var, covered: Collection[core.Var]) -> bool:
    return any(var in covered for each in _behind(program, noise) for var in each.outvars)


def _is_drawn_by_entry(program: Program, noise: core.Var) -> bool:
    """Whether each entry of the noise is a draw of its own: not one number for all, or a box from two of them."""
    size = jaxprs.size(_bare(program, noise))
    drawn = [each for each in _behind(program, noise) if each.primitive.name in DRAWS]
    return size > 1 and any(jaxprs.size(each.outvars[0]) >= size for each in drawn)


def _bare(program: Program, noise: core.Var) -> core.Var:
    """The noise before it was spread out."""
    source = program.source(noise, SHAPES - {"transpose", "rev"})
    return source if isinstance(source, core.Var) else noise


def _has_examples(pair: Pair, noise: core.Var) -> bool:
    return bool(pair.axes(_bare(pair.program, noise)))


def _repeats(value: np.ndarray, axes: Sequence[int]) -> bool:
    """Whether all rows along an axis of the examples are the same, and not all numbers."""
    if value.dtype.kind not in "fbiu" or np.ptp(value.astype(np.float64)) == 0:
        return False
    return any(value.shape[axis] > 1 and (value == np.take(value, [0], axis)).all() for axis in axes)


def _fail(noise: core.Var, eqn: core.JaxprEqn, program: Program) -> NoReturn:
    lines = [place(each) for each in (eqn, *_behind(program, noise))]
    where = next((each for each in lines if each != UNKNOWN), UNKNOWN)
    what = "mask" if _is_mask(program, noise, masks(program)) else "noise"
    fail(
        "keys",
        f"all examples share the same random numbers: the {what} that is applied at {where} has shape "
        f"{jaxprs.shape(_bare(program, noise))} and is the same for every example of the batch",
        "the key: one for each example, as in jax.vmap(model)(x, jax.random.split(key, len(x))), or a "
        f"{what} of the shape of the whole batch",
        [where],
    )
