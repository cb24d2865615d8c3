"""Random keys that are used twice, read from the program.

Two values of a program are the same if the same equation makes them from the same values; so a key has a number, and
two draws with the same number draw the same bits. A key that a loop closes over draws the same numbers in every step.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._fresh import digest_of
from ._jaxprs import UNKNOWN, place
from ._program import CALLS, opened
from ._report import CheckInputError, Report, check_function, fail

DRAWS = ("random_bits", "random_gamma", "rng_bit_generator", "threefry2x32")
# What is drawn in this way is a mask: bits that are compared, without being made normal, exponential or categorical.
_TO_UNIFORM = frozenset(
    [
        "shift_right_logical",
        "or",
        "bitcast_convert_type",
        "sub",
        "mul",
        "add",
        "max",
        "min",
        "reshape",
        "convert_element_type",
        "broadcast_in_dim",
        "squeeze",
        "slice",
        "stop_gradient",
    ]
)


def keys(function: Callable[..., Any], *args: PyTree, what: str = "the function") -> Report:
    """No two draws of `function(*args)` may use the same random key; nothing is computed.

    It finds a key that two draws use, in the same place or through the same split, a key that every step of a loop
    uses, and a key that no argument determines where it masks something (dropout).

    **Arguments**

    - `function`: a loss, an initializer or a function that makes a batch; `args` are arrays or their shapes.
    - `what`: what the message calls it.

    >>> import jax
    >>> def noisy(key, x):
    ...     return x + jax.random.normal(key, (3,)), jax.random.uniform(key, (3,))
    >>> keys(noisy, jax.random.key(0), jax.numpy.ones(3))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: in the function, one random key draws twice, at ... and at ...
    """
    check_function(function)
    closed = opened(jaxprs.readable(function)(*args))
    reader = _Reader(what)
    reader.read(closed.jaxpr, {})
    return Report(
        "keys", f"{reader.draws} draws in {what}, each with a key of its own", {"draws": reader.draws}
    )


def workers(make: Callable[[int], Iterable[PyTree]], count: int = 2, *, batches: int = 3) -> Report:
    """The workers of a loader, or the processes of a run, must not read the same batches.

    `make(worker)` returns the batches of one of `count` workers, of which the first `batches` are compared.

    >>> import numpy as np
    >>> print(workers(lambda worker: [np.random.default_rng(worker).normal(size=4)]))
    keys: 2 workers read different batches
    >>> workers(lambda worker: [np.random.default_rng(0).normal(size=4)])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: workers 0 and 1 read the same batch 0. Look at the seed of each worker, ...
    """
    if count < 2:
        raise CheckInputError(f"expected two workers or more, found count={count}")
    if batches < 1:
        raise CheckInputError(f"expected one batch or more of each worker, found batches={batches}")
    seen: dict[bytes, tuple[int, int]] = {}
    for worker in range(count):
        own = list(itertools.islice(make(worker), batches))
        if not own:
            raise CheckInputError(f"expected batches of each worker, found none of worker {worker}")
        for number, batch in enumerate(own):
            before = seen.setdefault(digest_of(batch), (worker, number))
            if before[0] != worker:
                same = (
                    f"batch {number}"
                    if before[1] == number
                    else f"batch: batch {before[1]} is batch {number}"
                )
                fail(
                    "keys",
                    f"workers {before[0]} and {worker} read the same {same}",
                    "the seed of each worker, which should differ: derive it from the number of the worker or process",
                    [f"worker {worker}"],
                )
    return Report("keys", f"{count} workers read different batches", {"workers": count})


class _Reader:
    """Numbers the values of a program, and remembers which key drew where."""

    def __init__(self, what: str) -> None:
        self.what, self.draws = what, 0
        self._numbers: dict[Any, int] = {}
        self._drawn: dict[int, str] = {}
        self._constant: set[int] = set()
        self._around: list[core.JaxprEqn] = []

    def read(
        self, jaxpr: core.Jaxpr, known: dict[core.Var, int], fixed: frozenset[int] = frozenset()
    ) -> None:
        """`known` are the numbers of the inputs; `fixed`, in a loop, those that are the same in every step."""
        number = dict(known)
        for var in jaxpr.constvars:
            number.setdefault(var, self._number(("constant", id(var))))
            self._constant.add(number[var])
        for var in jaxpr.invars:
            number.setdefault(var, self._number(("input", id(var))))
        for eqn in jaxpr.eqns:
            inputs = [self._of(atom, number) for atom in eqn.invars]
            if eqn.primitive.name in DRAWS:
                self._draw(eqn, inputs[0], fixed)
            self._around.append(eqn)
            self._inside(eqn, inputs, fixed)
            self._around.pop()
            outputs = self._outputs(eqn, inputs)
            number |= dict(zip(eqn.outvars, outputs, strict=True))
            if inputs and all(each in self._constant for each in inputs):
                self._constant.update(outputs)
            if fixed and all(each in fixed or each in self._constant for each in inputs):
                fixed = fixed | set(outputs)

    def _number(self, what: Any) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _of(self, atom: Any, number: dict[core.Var, int]) -> int:
        if isinstance(atom, core.Var):
            return number[atom]
        value = np.asarray(atom.val)
        made = self._number(("literal", value.tobytes(), str(value.dtype)))
        self._constant.add(made)
        return made

    def _outputs(self, eqn: core.JaxprEqn, inputs: Sequence[int]) -> list[int]:
        name = eqn.primitive.name
        if name in ("random_wrap", "random_unwrap"):
            return [inputs[0]]
        # Programs inside are not compared: what two loops return is two values.
        inside = (
            id(eqn) if jaxprs.inner_jaxprs(eqn) or eqn.effects else str(sorted(map(str, eqn.params.items())))
        )
        return [self._number((name, inside, *inputs, place)) for place in range(len(eqn.outvars))]

    def _inside(self, eqn: core.JaxprEqn, inputs: Sequence[int], fixed: frozenset[int]) -> None:
        if eqn.primitive.name == "scan":
            loop, closed_over = jaxprs.loop_of(eqn)
            given = [*(self._number(("constant", id(each))) for each in closed_over), *inputs]
            consts = dict(zip(loop.consts, given, strict=False))
            self.read(loop.jaxpr, consts, frozenset(consts.values()) if loop.length > 1 else fixed)
            return
        opens = eqn.primitive.name == "cond" or eqn.primitive.name in CALLS
        for inner in jaxprs.inner_jaxprs(eqn):
            # The first input of a branch is the second of the equation.
            same = dict(zip(inner.invars[::-1], inputs[::-1], strict=False)) if opens else {}
            # Of the branches only one runs, so that each may use the key that the others use.
            before = dict(self._drawn)
            self.read(inner, same, fixed)
            self._drawn = before if eqn.primitive.name == "cond" else self._drawn

    def _draw(self, eqn: core.JaxprEqn, key: int, fixed: frozenset[int]) -> None:
        self.draws += 1
        # A draw of a library inside a loop has no line of its own; that of the loop is one.
        lines = [line for each in [eqn, *self._around[::-1]] if (line := place(each)) != UNKNOWN]
        here = lines[0] if lines else UNKNOWN
        if key in self._drawn:
            fail(
                "keys",
                f"in {self.what}, one random key draws twice, at {self._drawn[key]} and at {here}: the "
                "second draws the numbers of the first",
                "the key of the second: split it, as in key, used = jax.random.split(key), and use each part once",
                [here],
            )
        if key in fixed and key not in self._constant:
            fail(
                "keys",
                f"in {self.what}, every step of a loop draws with the same key at {here}, and so the same numbers",
                "the key: give each step its own, as in jax.lax.scan(step, start, jax.random.split(key, n))",
                [here],
            )
        self._drawn[key] = here


def masks(program: Any) -> dict[core.Var, core.JaxprEqn]:
    """The random masks of a program: where random bits are compared with a number, and the draw they come from."""
    drawn = {eqn.outvars[0]: eqn for eqn in program.eqns if eqn.primitive.name in DRAWS}
    found = {}
    for eqn in program.eqns:
        if eqn.primitive.name in ("lt", "gt", "le", "ge"):
            for atom in eqn.invars:
                draws = [
                    each for each in program.ancestors(atom, _TO_UNIFORM, 24) if each.outvars[0] in drawn
                ]
                if draws:
                    found[eqn.outvars[0]] = draws[0]
    return found


def dropouts(program: Any) -> list[core.JaxprEqn]:
    """Where a random mask sets something of the parameters to zero: dropout. The draws of these masks."""
    of_params, found = program.dependent("params"), []
    for mask, draw in masks(program).items():
        reached, waiting = {mask}, [mask]
        while waiting:
            for eqn in program.readers.get(waiting.pop(), []):
                name, out = eqn.primitive.name, eqn.outvars[0]
                masks_it = name == "select_n" and eqn.invars[0] in reached
                if (masks_it or name in ("mul", "div")) and out in of_params:
                    found.append(draw)
                elif name in (*_TO_UNIFORM, "not", "div") and out not in reached and out not in of_params:
                    reached.add(out)
                    waiting.append(out)
    return list({id(each): each for each in found}.values())
