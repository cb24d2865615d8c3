"""A loop as data: the jaxpr of one step, what is constant, what is carried, how often it runs."""

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core, source_info_util
from jax.extend.core import primitives as p

from lapwing.loops import _jaxprs as jaxprs

Values = Sequence[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Loop:
    """One scan. `jaxpr` maps (constants, carry, x) to (carry, y), all flat."""

    jaxpr: core.Jaxpr
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    unroll: int

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
    def carry_out(self) -> list[jaxprs.Atom]:
        return self.jaxpr.outvars[: self.num_carry]

    @property
    def ys(self) -> list[jaxprs.Atom]:
        return self.jaxpr.outvars[self.num_carry :]

    def three(self, inputs: Values) -> tuple[Values, Values, Values]:
        """Flat inputs as constants, initial carry and xs."""
        first_x = self.num_consts + self.num_carry
        return inputs[: self.num_consts], inputs[self.num_consts : first_x], inputs[first_x:]

    @property
    def eqns(self) -> list[core.JaxprEqn]:
        return self.jaxpr.eqns

    def stacked(self, var: core.Var) -> jax.ShapeDtypeStruct:
        """The shape of all steps' values of a variable."""
        return jax.ShapeDtypeStruct((self.length, *jaxprs.shape(var)), jaxprs.dtype(var), weak_type=False)

    def uses(self) -> Counter[core.Var]:
        """How often each variable is read by an equation or returned."""
        atoms = [*(eqn.invars for eqn in self.eqns), self.jaxpr.outvars]
        return Counter(var for group in atoms for var in jaxprs.variables(group))

    def iterate(self, step: Callable[..., Any], init: Values, xs: Values) -> tuple[list[Any], list[Any]]:
        """`jax.lax.scan` of another `step` with this loop's length, direction and unrolling."""
        return jax.lax.scan(
            step, list(init), list(xs), length=self.length, reverse=self.reverse, unroll=self.unroll
        )

    def run(self, consts: Values, init: Values, xs: Values) -> list[Any]:
        """The reference: this very loop by `jax.lax.scan`. Returns the last carry and the stacked outputs, flat."""

        def step(carry, x):
            out = jaxprs.run(self.jaxpr, *consts, *carry, *x)
            return out[: self.num_carry], out[self.num_carry :]

        carry, ys = self.iterate(step, init, xs)
        return [*carry, *ys]


def loop_of(eqn: core.JaxprEqn) -> tuple[Loop, list[Any]]:
    """The loop of a `scan` equation, and the constants its jaxpr holds, which become its first inputs."""
    params = eqn.params
    settings = (params[name] for name in ("length", "reverse", "unroll"))
    return _loop(params["jaxpr"], *jaxprs.scan_counts(params), *settings), list(params["jaxpr"].consts)


@functools.lru_cache(maxsize=256)
def _loop(closed: core.ClosedJaxpr, num_consts: int, *rest: Any) -> Loop:
    """Cached, so that the same scan is the same loop, and whatever was compiled for it is found again."""
    return Loop(jaxprs.without_constvars(closed.jaxpr), num_consts + len(closed.consts), *rest)


ScanRule = Callable[[core.JaxprEqn, Values], list[Any]]


@contextlib.contextmanager
def in_place_of(eqn: core.JaxprEqn) -> Iterator[None]:
    """What is traced in here stands at the equation's place in the user's source, in its context (precision, …)."""
    source = eqn.source_info
    stack = source_info_util.current_name_stack() + source.name_stack
    with source_info_util.user_context(source.traceback, name_stack=stack), eqn.ctx.manager:
        yield


def bind(eqn: core.JaxprEqn, values: Values) -> list[Any]:
    """Run one equation."""
    with in_place_of(eqn):
        out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return list(out) if eqn.primitive.multiple_results else [out]


def run_inlined(jaxpr: core.Jaxpr, values: Values, on_scan: ScanRule) -> list[Any]:
    """Run `jaxpr` with nested `jit` calls opened up and every `scan` given to `on_scan`.

    Calls that carry a meaning of their own (custom derivatives, remat, cond) are left closed.
    """
    env = dict(zip(jaxpr.invars, values, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        if eqn.primitive is p.scan_p:
            outputs = on_scan(eqn, inputs)
        elif _is_plain_call(eqn):
            inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
            outputs = run_inlined(jaxprs.without_constvars(inner.jaxpr), [*inner.consts, *inputs], on_scan)
        else:
            outputs = bind(eqn, inputs)
        env.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _is_plain_call(eqn: core.JaxprEqn) -> bool:
    if eqn.primitive is p.closed_call_p:
        return True
    if eqn.primitive is not p.jit_p:
        return False
    # A call with shardings of its own says something that opening it would lose.
    shardings = [*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ())]
    return all(type(sharding).__name__ == "UnspecifiedValue" for sharding in shardings)


def opened(loop: Loop, consts: Values, on_scan: ScanRule) -> tuple[Loop, list[Any]]:
    """The same loop with nested calls opened and inner loops rewritten by `on_scan`."""
    avals = [var.aval for var in loop.jaxpr.invars]
    jaxpr, closed_over = jaxprs.trace(lambda *values: run_inlined(loop.jaxpr, values, on_scan), avals)
    flat = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=loop.num_consts + len(closed_over))
    return flat, [*closed_over, *consts]
