"""A loop as data: the jaxpr of one step, what is constant, what is carried, how many steps it has."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs._interpret import Values, interpret
from lapwing.jaxprs._read import Atom, dtype, shape, variables, without_constvars


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """One scan. `jaxpr` maps (constants, carry, x) to (carry, y), all flat."""

    jaxpr: core.Jaxpr
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    unroll: int
    marks: tuple[tuple[str, str], ...] = ()
    """XLA metadata of the scan equation that runs it, not of the equations inside."""

    @property
    def consts(self) -> list[core.Var]:
        return self.jaxpr.invars[: self.num_consts]

    @property
    def carry(self) -> list[core.Var]:
        return self.jaxpr.invars[self.num_consts : self.num_consts + self.num_carry]

    @property
    def xs(self) -> list[core.Var]:
        return self.jaxpr.invars[self.num_consts + self.num_carry :]

    @property
    def carry_out(self) -> list[Atom]:
        return self.jaxpr.outvars[: self.num_carry]

    @property
    def ys(self) -> list[Atom]:
        return self.jaxpr.outvars[self.num_carry :]

    @property
    def eqns(self) -> list[core.JaxprEqn]:
        return self.jaxpr.eqns

    def split_inputs(self, inputs: Values) -> tuple[Values, Values, Values]:
        """Flat inputs as constants, initial carry and xs."""
        first_x = self.num_consts + self.num_carry
        return inputs[: self.num_consts], inputs[self.num_consts : first_x], inputs[first_x:]

    def stacked(self, var: core.Var) -> jax.ShapeDtypeStruct:
        """The shape of a variable's values in all steps."""
        return jax.ShapeDtypeStruct((self.length, *shape(var)), dtype(var), weak_type=False)

    def uses(self) -> Counter[core.Var]:
        """How often each variable is read by an equation or returned."""
        atoms = [*(eqn.invars for eqn in self.eqns), self.jaxpr.outvars]
        return Counter(var for group in atoms for var in variables(group))

    def step(self, consts: Values) -> Callable[[Values, Values], tuple[list[Any], list[Any]]]:
        """The step as a function of (carry, x), for `jax.lax.scan`."""

        def step(carry: Values, x: Values) -> tuple[list[Any], list[Any]]:
            out = interpret(self.jaxpr, [*consts, *carry, *x])
            return out[: self.num_carry], out[self.num_carry :]

        return step

    def iterate(self, step: Callable[..., Any], init: Values, xs: Values) -> tuple[list[Any], list[Any]]:
        """`jax.lax.scan` of another `step` with this loop's length, direction, unrolling and marks."""

        def unmarked(carry: Values, x: Values) -> tuple[list[Any], list[Any]]:
            with set_xla_metadata(**{name: None for name, _ in self.marks}):
                return step(carry, x)

        with set_xla_metadata(**dict(self.marks)):
            return jax.lax.scan(
                unmarked, list(init), list(xs), length=self.length, reverse=self.reverse, unroll=self.unroll
            )

    def run(self, consts: Values, init: Values, xs: Values) -> list[Any]:
        """The reference: this loop by `jax.lax.scan`. Returns the last carry and the stacked outputs, flat."""
        carry, ys = self.iterate(self.step(consts), init, xs)
        return [*carry, *ys]


def loop_of(eqn: core.JaxprEqn) -> tuple[Loop, list[Any]]:
    """The loop of a `scan` equation, and the constants its jaxpr closes over, which become its first inputs."""
    return loop_from(eqn.params)


def loop_from(params: Mapping[str, Any]) -> tuple[Loop, list[Any]]:
    """The same, from the parameters of the equation."""
    settings = (params[name] for name in ("length", "reverse", "unroll"))
    return _loop(params["jaxpr"], *scan_counts(params), *settings), list(params["jaxpr"].consts)


@functools.lru_cache(maxsize=256)
def _loop(closed: core.ClosedJaxpr, num_consts: int, *rest: Any) -> Loop:
    """Cached, so that the same scan is the same loop, and what was compiled for it is found again."""
    return Loop(without_constvars(closed.jaxpr), num_consts + len(closed.consts), *rest)


def scan_counts(params: Any) -> tuple[int, int]:
    """Number of constants and of carries of a `scan` equation, which jax 0.10 and 0.11 store differently."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def scans(
    jaxpr: core.Jaxpr, called: Callable[[core.JaxprEqn], core.ClosedJaxpr | None]
) -> Iterator[core.JaxprEqn]:
    """The `scan` equations that `open_calls(rule, called)` reaches, in order; scans inside scans are left out."""
    for eqn in jaxpr.eqns:
        if eqn.primitive is p.scan_p:
            yield eqn
        elif (inner := called(eqn)) is not None:
            yield from scans(inner.jaxpr, called)
