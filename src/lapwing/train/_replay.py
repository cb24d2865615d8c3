"""A step made again to find where its first value that is not finite comes from.

The loop notices such a value some steps later, when the metrics arrive. A step that is not finite changes nothing, so
if all steps since then were not finite either, the present state is the one before it. Otherwise the steps since the
best state are made again, by the program that made them; batches of a stream cannot be read again, so then the batch,
which is still there, is tried with the present parameters, and the report says so.

The step is then run with a look at every value in it (`jaxprs.observe`): one compiled call, of the loss alone where
that is not finite, of loss and gradient otherwise. It costs about what a step costs; compiling it is reported apart.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from lapwing.core import format_seconds
from lapwing.jaxprs import Blame, Frame, blame, observe, readable
from lapwing.task import Batch

from ._config import FitConfig
from ._feed import Fed
from ._gradient import loss_alone
from ._program import Program
from ._state import State, copy_of
from ._step import SKIPPED
from ._transfer import Rows

if TYPE_CHECKING:
    from ._loop import TrainingLoop

_MOST_STEPS_AGAIN = 1000
_MOST_BYTES = 1 << 28  # Of batches that are kept until their metrics arrive.


class Recent:
    """What a stream fed to the calls whose metrics have not arrived yet."""

    def __init__(self) -> None:
        self._feds: list[tuple[range, Fed]] = []

    def add(self, step: int, count: int, fed: Fed) -> None:
        self._feds.append((range(step, step + count), fed))
        while len(self._feds) > 1 and sum(_nbytes(each) for _, each in self._feds) > _MOST_BYTES:
            self._feds.pop(0)

    def clear(self) -> None:
        self._feds = []

    def of_step(self, step: int) -> Fed | None:
        """What a step was fed, without an axis of steps; None if that is gone."""
        for steps, fed in self._feds:
            if step in steps:
                return _one(fed, step - steps.start)
        return None


class Replay(NamedTuple):
    """What a replay found: `found` is None if every value was finite this time."""

    found: Blame | None
    names: Sequence[str]
    how: str
    seconds: float
    compiling: float

    @property
    def said(self) -> str:
        seconds, compiling = map(format_seconds, (self.seconds, self.compiling))
        took = f"replayed {self.how} in {seconds}, after {compiling} of compiling"
        if self.found is None:
            return f"every value was finite when it was {took}"
        if self.found.input is not None:
            return f"{self.names[self.found.input]} holds {_in_words(self.found)} before anything is computed; {took}"
        return f"the first comes from {self.found}; {took}"

    def evidence(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "how": self.how,
            "seconds": self.seconds,
            "compiling_seconds": self.compiling,
        }
        if (found := self.found) is not None and found.input is None:
            facts |= {
                "operation": found.operation,
                "place": found.place,
                "iterations": [each._asdict() for each in found.iterations],
                "inputs": [each._asdict() for each in found.inputs],
                "output": found.output._asdict(),
            }
        elif found is not None and found.input is not None:
            facts["input"] = self.names[found.input]
        return facts


def replay(loop: "TrainingLoop", rows: Rows, step: int) -> Replay | None:
    """Makes a step of `rows` again that was not finite; None if its batch is gone."""
    before = _state_before(loop, rows, step)
    if before is None:
        return None
    state, fed, how = before
    is_loss = not np.isfinite(rows.columns["loss"][step - rows.steps.start])
    started = time.perf_counter()
    run, frame, leaves = observed_step(
        loop.program, loop.config, state, fed, loop.config.accumulate > 1 or not is_loss
    )
    compiling, started = time.perf_counter() - started, time.perf_counter()
    vector = np.asarray(run(*leaves))
    seconds = time.perf_counter() - started
    return Replay(blame(frame, vector), _names(state, fed), how, seconds, compiling)


def observed_step(
    program: Program, config: FitConfig, state: State, fed: Fed, with_gradient: bool
) -> tuple[Callable[..., jax.Array], Frame, list[jax.Array]]:
    """What computes the numbers of a step's values, compiled, what they are about, and its arguments: the loss alone,
    or with the gradient."""
    leaves = jax.tree.leaves((state, fed))
    key = with_gradient, tuple((leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves)
    if key in program.replays:  # Of another run of `fit_many`.
        return (*program.replays[key], leaves)
    phases, alone = program.phases_of_one(), loss_alone(program.task, config)

    def computed(state: State, fed: Fed) -> Any:
        batch = phases.data(state, fed)
        if phases.prepare:
            batch = phases.prepare(state, batch)
        if not with_gradient:
            return alone(state, batch)
        loss, _, pullback = phases.forward(state, batch)
        return loss, phases.backward(loss, pullback)

    run, frame = observe(readable(computed)(state, fed))
    compiled = jax.jit(lambda *leaves: run(*leaves)[1]).lower(*leaves).compile()
    program.replays[key] = compiled, frame
    return compiled, frame, leaves


def batch_at(loop: "TrainingLoop", step: int) -> Batch | None:
    """A batch near a step, from the present state; None if the data are a stream and its batch is gone."""
    fed = loop.watching.recent.of_step(step) if loop.feed.is_stream else _fed(loop, step)
    if fed is None:
        return None
    state = loop.position.state
    return jax.jit(loop.program.phases_of_one().data)(state._replace(step=state.step * 0 + step), fed)


def _state_before(loop: "TrainingLoop", rows: Rows, step: int) -> tuple[State, Fed, str] | None:
    state = loop.position.state
    at_step = state._replace(step=state.step * 0 + step)
    has_stayed = (
        rows.columns[SKIPPED][step - rows.steps.start :].all() and rows.steps.stop == loop.position.done
    )
    fed = loop.watching.recent.of_step(step) if loop.feed.is_stream else _fed(loop, step)
    if fed is None:
        return None
    if has_stayed:
        return at_step, fed, "from the state before it"
    if not loop.feed.is_stream and (again := _made_again(loop, step)) is not None:
        return again[0], fed, f"from the state before it ({again[1]} steps made again)"
    return at_step, fed, f"with its batch and the parameters of step {loop.position.done}"


def _made_again(loop: "TrainingLoop", step: int) -> tuple[State, int] | None:
    """The state before a step, from the best one; None if that is too long ago."""
    best, position, program = loop.best, loop.position, loop.program
    if not 0 <= step - best.step <= _MOST_STEPS_AGAIN or program.task.rounds is not None or program.is_many:
        return None
    then = best.state() if callable(best.state) else best.state
    # Data and controls may have changed at a rollback to it.
    state = copy_of(then._replace(keys=position.state.keys).with_controls(position.state.controls))
    at, count = best.step, step - best.step
    while at < step:
        many = min(position.count_at(at), step - at)
        fed = loop.feed.take(at, many)
        carry = program.load(None, state, many, fed)
        state = copy_of(program.state_of(program.steps(carry, many, fed)(carry, fed)))
        at += many
    _take_back(loop)
    return state, count


def _fed(loop: "TrainingLoop", step: int) -> Fed:
    fed = loop.feed.take(step, 1)
    _take_back(loop)
    return _one(fed, 0)


def _take_back(loop: "TrainingLoop") -> None:
    """The feed goes on where the run is; only data that can be read again are taken here."""
    loop.feed.restore(None, loop.position.done, loop.returns)


def _one(fed: Fed, at: int) -> Fed:
    return fed._replace(each=jax.tree.map(lambda leaf: jax.numpy.asarray(leaf[at]), fed.each))


def _names(state: State, fed: Fed) -> list[str]:
    paths, _ = jax.tree_util.tree_flatten_with_path((state, fed))
    return [_name(jax.tree_util.keystr(path)) for path, _ in paths]


def _name(path: str) -> str:
    """`[0].params['w']` of the state, `[1].each['x']` of what the step is fed, in the user's words."""
    place, rest = path[:3], path[4:]
    if place == "[1]":
        field, _, inner = rest.partition("[")
        named = {"each": "batch", "shared": "data", "own": "rows"}[field.split(".")[0]]
        return f"{named}[{inner}" if inner else named
    return rest


def _in_words(found: Blame) -> str:
    values = {found.output.least, found.output.largest}
    return "nan" if any(np.isnan(list(values))) else "infinities"


def _nbytes(fed: Fed) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(fed.each))
