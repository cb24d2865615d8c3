"""What compiles: the step of a task, as one call of several fused steps and as phases apart."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lapwing.jaxprs import Frame
from lapwing.task import Loss, Task

from ._carry import Carry, Packing
from ._compiling import HowCompiled, backend_version, fingerprint, how_to_compile, keep_programs
from ._config import FitConfig
from ._evaluation import make_evaluation
from ._feed import Fed
from ._mask import Mask
from ._state import State, shapes_of
from ._step import Packed, Phases, make_phases, take_steps
from ._timer import FUSED, PhaseTimer

_NOTHING = Fed()
_LARGE_BYTES = 1 << 20  # Smaller constants do no harm, and may make the step faster.
_LOG_ROWS = 512, 8192  # From, to; a window of more steps is fetched in parts.


class Program:
    """The compiled steps of states like `like`. `transform` changes how the phases of a step are computed: batched over
    many runs (`many`), or split over devices. Few arrays go from call to call, as a `Carry`."""

    def __init__(
        self,
        task: Task,
        mask: Mask,
        config: FitConfig,
        like: State,
        transform: Callable[[Phases], Phases] = lambda phases: phases,
        *,
        many: bool = False,
    ):
        self.task, self.mask = task, mask
        self.timer = PhaseTimer(config)
        self.evaluate = make_evaluation(task, config)
        self.names: tuple[str, ...] = ()  # Of the metrics; known after the first call.
        self._row: jax.ShapeDtypeStruct | None = None  # Of the log, likewise.
        whole, (least, most) = config.steps_per_call, _LOG_ROWS
        self.rows = max(min(max(config.log_every, least), most), 2 * whole)  # What may wait to be fetched.
        # And the rows of one more call, which are never apart.
        self._wraps, self._length = self.rows + whole, self.rows + 2 * whole
        self._like = shapes_of(like)
        self._packing = Packing((self._like, jax.ShapeDtypeStruct((), jnp.int32)))
        self._make_phases = lambda task: transform(make_phases(task, mask, config))
        self._phases = self._make_phases(task)
        self.is_many = many
        self.replays: dict[Any, tuple[Callable[..., jax.Array], Frame]] = {}  # Of steps, to find a first nan.
        keep_programs(config)
        self._config, self._how = config, HowCompiled({}, "")
        self._compiled: dict[Any, Callable[..., Any]] = {}
        self._first: Callable[..., Any] | None = None  # Of the calls that were compiled.
        self._fingerprint = ""
        self._calls = 0

    @property
    def fingerprint(self) -> str:
        """Of the first call that was compiled; empty before. It takes some milliseconds, once."""
        if self._first and not self._fingerprint:
            self._fingerprint = fingerprint(self._first)
        return self._fingerprint

    @property
    def how(self) -> str:
        """How the steps were compiled, in words; empty if there is nothing to say."""
        return self._how.words

    def about(self) -> dict[str, Any]:
        """What was compiled, and how, for environment.json."""
        return {
            "backend": backend_version(),
            "options": self._how.options,
            "deterministic": self._how.words or "always, on a CPU",
            "fingerprint": self.fingerprint,
        }

    # The carry.

    def load(self, carry: Carry | None, state: State, count: int, fed: Fed) -> Carry:
        """The carry with this state instead of its own, for a next call of `count` steps; None: a new one."""
        if carry is not None and self._row is not None:
            return self._carry(state, self._unpacked(carry)[1], carry.log)
        self._traced(count, fed)
        assert self._row is not None
        row, log = jnp.zeros((), jnp.int32), jnp.zeros((self._length, *self._row.shape), self._row.dtype)
        if state.step.committed:
            row, log = jax.device_put((row, log), state.step.sharding)
        return self._carry(state, row, log)

    def state_of(self, carry: Carry) -> State:
        """The state. Its arrays may be those of the carry: they are gone after the next call."""
        return self._unpacked(carry)[0]

    def next_row(self, row: int, count: int) -> int:
        """Where the log has the rows of the next call, after one of `count` steps whose rows start at `row`."""
        return row + count if row + count < self._wraps else 0

    def _carry(self, state: State, row: jax.Array, log: jax.Array) -> Carry:
        return Carry(*self._packing.pack((state, row)), log)

    def _unpacked(self, carry: Carry) -> Any:
        return self._packing.unpack(carry.small, carry.large)

    # Steps.

    def advance(self, carry: Carry, count: int, fed: Fed = _NOTHING, waited: float | None = None) -> Carry:
        """The carry after `count` more steps; the one before is donated. `waited` is the time that the host waited for
        the data, if it does that."""
        take = self.steps(carry, count, fed)
        if self.timer.is_due(self._calls, count):
            per_step = None if waited is None else waited / count
            self.timer.time(self.state_of(carry), carry, fed, take, self.phases, per_step)
        self._calls += 1
        return take(carry, fed)

    def steps(self, carry: Carry, count: int, fed: Fed = _NOTHING) -> Any:
        """The compiled call of `count` fused steps with what they are fed, which donates its first argument."""
        key = count, _shapes(fed)
        if key not in self._compiled:
            fused = self._traced(count, fed)

            def on_carry(carry: Carry, fed: Fed) -> Carry:
                state, row = self._unpacked(carry)
                state, numbers = fused(state, fed)
                log = jax.lax.dynamic_update_slice_in_dim(carry.log, numbers, row, 0)
                after = jnp.where(row + count < self._wraps, row + count, 0)  # As `next_row`.
                return self._carry(state, after, log)

            self._compiled[key] = self._compile(FUSED, on_carry, (shapes_of(carry), fed), donate=True)
            self._first = self._first or self._compiled[key]
        return self._compiled[key]

    def _traced(self, count: int, fed: Fed) -> Callable[[State, Fed], tuple[State, jax.Array]]:
        """`count` fused steps, traced; what their metrics are is known afterwards."""
        phases = self._phases

        def fused(state: State, fed: Fed) -> tuple[State, Packed]:
            return take_steps(phases, state, count, fed)

        key = "traced", count, _shapes(fed)
        if key not in self._compiled:
            with self.timer.compiling(FUSED, "trace"):
                traced = jax.jit(fused).trace(self._like, fed)
            packed = traced.out_info[1]
            self.names = packed.names
            self._row = jax.ShapeDtypeStruct(packed.numbers.shape[1:], packed.numbers.dtype)
            output = jax.tree.structure(traced.out_info)

            def again(state: State, fed: Fed) -> tuple[State, jax.Array]:
                leaves = jaxpr_as_fun(traced.jaxpr)(*jax.tree.leaves((state, fed)))
                state, packed = jax.tree.unflatten(output, leaves)
                return state, packed.numbers

            self._compiled[key] = again
        return self._compiled[key]

    def phases(self, call: Callable[..., Any]) -> Phases:
        """The phases of a step, compiled apart; each of them is run by `call(name, compiled phase, *arguments)`."""

        def apart(name: str, phase: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                key = name, _shapes(arguments[1:])
                if key not in self._compiled:
                    self._compiled[key] = self._compile(name, phase, arguments)
                return call(name, self._compiled[key], *arguments)

            return run

        return self._phases.map(apart)

    def phases_of_one(self) -> Phases:
        """The phases of a step of one run, to be compiled otherwise: by a probe or a replay."""
        return make_phases(self.task, self.mask, self._config) if self.is_many else self._phases

    def use(self, loss: Loss) -> None:
        """Trains with this loss from now on; compiles again if it is another one."""
        if loss is not self.task.loss:
            self.task = dataclasses.replace(self.task, loss=loss)
            self._phases = self._make_phases(self.task)
            self._compiled.clear()
            self.replays.clear()
            self._row = None  # Its metrics may be others.
            self._first, self._fingerprint = None, ""

    def _compile(
        self, path: str, function: Callable[..., Any], arguments: tuple[Any, ...], donate: bool = False
    ) -> Callable[..., Any]:
        with self.timer.compiling(path, "trace"):
            traced = jax.jit(function, donate_argnums=0 if donate else ()).trace(*arguments)
            captured = _large(traced.jaxpr.consts)
            if captured:
                take, captured = _with_arguments(traced, donate)
                traced = take.trace(captured, *arguments)
        how = how_to_compile(self._config, traced.jaxpr.jaxpr)
        if path == FUSED:
            self._how = how
        with self.timer.compiling(path, "lower"):
            lowered = traced.lower()
        with self.timer.compiling(path, "compile"):
            compiled = lowered.compile(how.options or None)
        return functools.partial(compiled, captured) if captured else compiled


def _shapes(tree: Any) -> Any:
    return tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))


def _large(constants: Sequence[Any]) -> list[Any]:
    """Arrays that a function closes over and that should be arguments: as constants, they are copied into the program,
    and the compiler folds them for minutes."""
    found = list(constants)
    return found if sum(getattr(each, "nbytes", 0) for each in found) >= _LARGE_BYTES else []


def _with_arguments(traced: Any, donate: bool) -> tuple[Any, list[jax.Array]]:
    """The traced function with what it closes over as its first argument, and these arrays on the device."""
    program, output = traced.jaxpr, jax.tree.structure(traced.out_info)

    def function(captured: list[Any], *arguments: Any) -> Any:
        closed = ClosedJaxpr(program.jaxpr, captured)
        return jax.tree.unflatten(output, jaxpr_as_fun(closed)(*jax.tree.leaves(arguments)))

    return jax.jit(function, donate_argnums=1 if donate else ()), jax.device_put(program.consts)
