"""A traced loss with what is cut on purpose held at its value: the function whose slope the automatic gradient is.

`jax.lax.stop_gradient(x)` is, for a derivative, the constant that `x` happens to be. So a program runs twice: once to
record the stopped values at the base point, then, at any other point, with these values in their place. Finite
differences of the second program see what is cut as cut, and everything else. A *surrogate*, a function whose custom
derivative is not its own on purpose (a straight-through estimator), is replaced in the same way by the line through its
value with the slope that its rule claims.

Records of a loop are stacked along its steps, and those of a branch that is not taken are zeros. A stop_gradient in a
while loop, which has no gradient, and in what cannot be made again here (`shard_map`, a kernel) is left as it is.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs import Rule, bind, equations, inner_jaxprs, interpret, loop_of

from ._jaxprs import custom_function

Records = list[Any]
IsSurrogate = Callable[[core.JaxprEqn], bool]
_STOP = "stop_gradient"
_OPENED = ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2")
_CUSTOM = ("custom_jvp_call", "custom_vjp_call")


class Held:
    """A program with its stopped values held. `into_custom`: also those inside functions with a custom derivative,
    whose rule may cut there too or not."""

    def __init__(
        self, program: core.ClosedJaxpr, surrogates: Sequence[str] = (), into_custom: bool = True
    ) -> None:
        self._program, self._into_custom = program, into_custom
        names = frozenset(surrogates)
        self._is_surrogate: IsSurrogate = lambda eqn: bool(names) and custom_function(eqn) in names

    @property
    def holds(self) -> bool:
        """Whether there is anything to hold."""
        return any(map(self._matters, self._program.jaxpr.eqns))

    def record(self, *values: Any) -> Records:
        """The values to hold: those at these inputs."""
        tape = _Tape(None)
        self._interpret(self._program, values, tape)
        return tape.records

    def run(self, records: Records, *values: Any) -> list[Any]:
        """The outputs at these inputs, with the recorded values held."""
        return self._interpret(self._program, values, _Tape(records))

    def _interpret(self, program: core.ClosedJaxpr, values: Sequence[Any], tape: "_Tape") -> list[Any]:
        return interpret(program.jaxpr, [*program.consts, *values], self._rule(tape))

    def _matters(self, eqn: core.JaxprEqn) -> bool:
        """Whether the equation is one to hold, or has one inside that can be reached."""
        name = eqn.primitive.name
        if name == _STOP or self._is_surrogate(eqn):
            return True
        if name not in (*_OPENED, *_CUSTOM, "scan", "cond") or (name in _CUSTOM and not self._into_custom):
            return False
        inside = inner_jaxprs(eqn)[:1] if name in _CUSTOM else inner_jaxprs(eqn)
        return any(self._matters(each) for jaxpr in inside for each in jaxpr.eqns)

    def _rule(self, tape: "_Tape") -> Rule:
        def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> Sequence[Any] | None:
            if eqn.primitive.name == _STOP:
                return [tape.hold(inputs[0])]
            if not self._matters(eqn):
                return None
            if self._is_surrogate(eqn):
                base, value = tape.hold((inputs, bind(eqn, inputs) if tape.recording else None))
                return value if tape.recording else _on_the_line(eqn, base, value, inputs)
            if eqn.primitive is p.scan_p:
                return self._scan(eqn, inputs, tape)
            if eqn.primitive is p.cond_p:
                return self._cond(eqn, inputs, tape)
            return self._interpret(_inside(eqn), inputs, tape)

        return rule

    def _scan(self, eqn: core.JaxprEqn, inputs: list[Any], tape: "_Tape") -> list[Any]:
        loop, closed_over = loop_of(eqn)
        consts, init, xs = loop.split_inputs([*closed_over, *inputs])
        body = core.ClosedJaxpr(loop.jaxpr, ())

        def step(carry: Any, x: Any) -> Any:
            x, records = x
            inner = _Tape(records)
            out = self._interpret(body, [*consts, *carry, *x], inner)
            return out[: loop.num_carry], (out[loop.num_carry :], inner.made)

        carry, (ys, made) = loop.iterate(step, init, [list(xs), tape.next()])  # pyright: ignore
        tape.add(made)
        return [*carry, *ys]

    def _cond(self, eqn: core.JaxprEqn, inputs: list[Any], tape: "_Tape") -> list[Any]:
        which, *operands = inputs
        branches = eqn.params["branches"]
        given = tape.next() or [None] * len(branches)

        def run(number: int, *operands: Any) -> tuple[list[Any], Records]:
            inner = _Tape(given[number])
            return self._interpret(branches[number], operands, inner), inner.made

        numbers = range(len(branches))
        shapes = [jax.eval_shape(functools.partial(run, number), *operands)[1] for number in numbers]
        zeros = [jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), shape) for shape in shapes]

        def taken(number: int, *operands: Any) -> Any:
            out, mine = run(number, *operands)
            return out, [*zeros[:number], mine, *zeros[number + 1 :]]

        out, made = jax.lax.switch(which, [functools.partial(taken, number) for number in numbers], *operands)
        tape.add(made)
        return out


class _Tape:
    """The values that a program holds, in the order in which it meets them: recorded, or given to be used."""

    def __init__(self, records: Records | None) -> None:
        self.recording = records is None
        self.records: Records = [] if records is None else list(records)
        self._at = 0

    @property
    def made(self) -> Records:
        """What was recorded; nothing if the records were given."""
        return self.records if self.recording else []

    def hold(self, value: Any) -> Any:
        """The value, recorded; or the one that was recorded in its place."""
        self.add(value)
        return value if self.recording else self.next()

    def add(self, value: Any) -> None:
        if self.recording:
            self.records.append(value)

    def next(self) -> Any:
        """The next record; None while recording."""
        if self.recording:
            return None
        self._at += 1
        return self.records[self._at - 1]


def _inside(eqn: core.JaxprEqn) -> core.ClosedJaxpr:
    inner = eqn.params.get("call_jaxpr", eqn.params.get("jaxpr"))
    return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())  # pyright: ignore


def _on_the_line(eqn: core.JaxprEqn, base: list[Any], value: list[Any], inputs: list[Any]) -> list[Any]:
    """The value at the base point plus the derivative of the rule there times the way from it."""
    floating = [jnp.issubdtype(jnp.result_type(each), jnp.floating) for each in base]

    def of_floats(*floats: Any) -> list[Any]:
        waiting = iter(floats)
        return bind(eqn, [next(waiting) if ours else each for each, ours in zip(base, floating, strict=True)])

    at = [each for each, ours in zip(base, floating, strict=True) if ours]
    way = [new - old for new, old, ours in zip(inputs, base, floating, strict=True) if ours]
    _, pullback = jax.vjp(of_floats, *at)
    # The derivative of a custom_vjp is known on the way back only; its transpose is the one on the way forward.
    (moves,) = jax.linear_transpose(lambda slopes: pullback(slopes), value)(tuple(way))
    return [
        old + move if jnp.issubdtype(jnp.result_type(old), jnp.floating) else old
        for old, move in zip(value, moves, strict=True)
    ]


def cuts_in_custom(program: core.ClosedJaxpr) -> bool:
    """Whether a function with a custom derivative has a stop_gradient inside."""
    custom = (eqn for eqn in equations(program.jaxpr) if eqn.primitive.name in _CUSTOM)
    inside = (each for eqn in custom for jaxpr in inner_jaxprs(eqn) for each in equations(jaxpr))
    return any(each.primitive.name == _STOP for each in inside)
