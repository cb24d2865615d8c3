"""Commands to a running run: what may be asked of it, and how it answers.

A command is carried out between two calls of the device. It changes numbers that are in the state already, so that
nothing is compiled again. What cannot be done is refused, with the reason.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp

from lapwing.core import LapwingError, suggestion
from lapwing.journal import Command

from ._checkpoints import CheckpointError
from ._state import Controls

if TYPE_CHECKING:
    from ._loop import Loop


class RefusedError(LapwingError, ValueError):
    """Why a command is not carried out."""


class _Range(NamedTuple):
    expected: str
    holds: Callable[[float], bool]


_POSITIVE = _Range("a positive number", lambda value: 0 < value < math.inf)
_CLIP = _Range("a positive number, or inf for none", lambda value: value > 0)
_AT_LEAST_0 = _Range("a number of at least 0", lambda value: 0 <= value < math.inf)
_RANGES = {"learning_rate": _POSITIVE, "clip": _CLIP, "weight_decay": _AT_LEAST_0}
_SHORT = {"lr": "learning_rate"}


def answer(loop: "Loop", command: Command) -> str:
    """Carries out a command, or refuses it; whoever sent it finds the answer in the run folder."""
    try:
        outcome = _obey(loop, command)
    except RefusedError as refusal:
        if loop.run:
            loop.run.refused(command, str(refusal))
        return f"{command}: refused: {refusal}"
    if loop.run:
        loop.run.applied(command, outcome, step=loop.done)
    return f"{command}: {outcome}"


def _obey(loop: "Loop", command: Command) -> str:
    """Returns what was done, or raises `RefusedError`."""
    action = _ACTIONS.get(command.name)
    if action is None:
        raise RefusedError(f"{command.name!r} is not a command; {suggestion(command.name, _ACTIONS)}")
    known = action.arguments
    if known is not None and (unknown := [name for name in command.arguments if name not in known]):
        raise RefusedError(
            f"{command.name} takes {' and '.join(known) or 'no arguments'}, not {', '.join(unknown)}"
        )
    return action.function(loop, command.arguments)


def changed(controls: Controls, wanted: Mapping[str, Any]) -> tuple[Controls, str]:
    """The controls with other values, and the changes in words.

    >>> before = Controls(*map(jnp.float32, (0.1, math.inf, 0.0)), penalties={"l1": jnp.float32(1)})
    >>> changed(before, {"lr": 0.5, "l1": 0})[1]
    'learning_rate 0.1 → 0.5, l1 1 → 0'
    >>> changed(before, {"lr": -1})
    Traceback (most recent call last):
    lapwing.train._control.RefusedError: learning_rate should be a positive number, but -1 was asked for
    """
    if not wanted:
        raise RefusedError("set needs a name and a value, such as lr=0.01")
    said = []
    for short, value in wanted.items():
        name = _SHORT.get(short, short)
        if name not in _RANGES and name not in controls.penalties:
            known = [*_RANGES, *controls.penalties, *_SHORT]
            raise RefusedError(f"{short!r} cannot be set; {suggestion(short, known)}")
        old = {**controls._asdict(), **controls.penalties}[name]
        new = jnp.full_like(old, _number(name, value))  # Where the old one is, on one device or on many.
        if name in controls.penalties:
            controls = _with_penalty(controls, name, new)
        else:
            controls = controls._replace(**{name: new})
        said.append(f"{name} {float(old):g} → {float(new):g}")
    return controls, ", ".join(said)


def _with_penalty(controls: Controls, name: str, weight: Any) -> Controls:
    return controls._replace(penalties={**controls.penalties, name: weight})


def _number(name: str, value: Any) -> float:
    allowed = _RANGES.get(name, _AT_LEAST_0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not allowed.holds(value):
        raise RefusedError(f"{name} should be {allowed.expected}, but {value} was asked for")
    return float(value)


def _set(loop: "Loop", arguments: Mapping[str, Any]) -> str:
    controls, said = changed(loop.state.controls, arguments)
    loop.state = loop.state.with_controls(controls)
    loop.saver.asked = True  # A resumed run must go on with what was set.
    return said


def _pause(loop: "Loop", _: Mapping[str, Any]) -> str:
    if loop.paused:
        raise RefusedError("it is paused already; `lapwing go on` lets it go on")
    loop.pause()
    return f"after step {loop.done}"


def _go_on(loop: "Loop", _: Mapping[str, Any]) -> str:
    if not loop.paused:
        raise RefusedError("it is not paused")
    loop.resume()
    return f"from step {loop.done}"


def _stop(loop: "Loop", _: Mapping[str, Any]) -> str:
    loop.stop("the command stop")
    return f"after step {loop.done}, with a checkpoint"


def _checkpoint(loop: "Loop", _: Mapping[str, Any]) -> str:
    loop.saver.asked = True
    return f"of step {loop.done}"


def _rollback(loop: "Loop", arguments: Mapping[str, Any]) -> str:
    to = arguments.get("to", "best")
    if to != "best" and (isinstance(to, bool) or not isinstance(to, int)):
        raise RefusedError(f"rollback goes to best or to the step of a checkpoint, not to {to!r}")
    before = loop.done
    try:
        loop.roll_back(to)
    except CheckpointError as error:
        raise RefusedError(str(error)) from None
    return f"from step {before} to step {loop.done}, with other data from there on"


def _laps(loop: "Loop", arguments: Mapping[str, Any]) -> str:
    every = arguments.get("every")
    if isinstance(every, bool) or not isinstance(every, int) or every < 0:
        raise RefusedError(f"laps takes a whole number of at least 0, but every={every} was given")
    loop.timer.every = every
    return f"the phases of one in {every} calls are timed" if every else "no phases are timed"


class _Action(NamedTuple):
    function: Callable[["Loop", Mapping[str, Any]], str]
    arguments: tuple[str, ...] | None = ()  # None: any, which the function looks at itself.


_ACTIONS = {
    "set": _Action(_set, None),
    "pause": _Action(_pause),
    "go on": _Action(_go_on),
    "stop": _Action(_stop),
    "checkpoint": _Action(_checkpoint),
    "rollback": _Action(_rollback, ("to",)),
    "laps": _Action(_laps, ("every",)),
}
