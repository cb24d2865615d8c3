"""The actions behind the commands to a running run.

The journal's table (`lapwing.journal.COMMANDS`) says which commands there are and checks their arguments before they
come here. A command is carried out between two calls of the device, and changes numbers that are in the state already,
so nothing is compiled again. A command that the run cannot carry out now is refused, with the reason.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

from lapwing.core import LapwingError
from lapwing.journal import Command

from ._checkpoints import CheckpointError
from ._state import Controls

if TYPE_CHECKING:
    from ._loop import TrainingLoop


class RefusedError(LapwingError, ValueError):
    """Why a command is not carried out."""


def announce(loop: "TrainingLoop") -> None:
    """Writes what `set` can change into the run folder, for the board and the command line."""
    if loop.run:
        loop.run.announce_controls(control_values(jax.device_get(loop.position.state.controls)))


def answer(loop: "TrainingLoop", command: Command) -> str:
    """Carries out a command or refuses it, and writes the answer into the run folder."""
    try:
        outcome = ACTIONS[command.name](loop, **command.arguments)
    except RefusedError as refusal:
        if loop.run:
            loop.run.refused(command, str(refusal))
        return f"{command}: refused: {refusal}"
    if loop.run:
        loop.run.applied(command, outcome, step=loop.position.done)
    return f"{command}: {outcome}"


def control_values(controls: Controls) -> dict[str, float]:
    """The controls by name, the penalties' weights among them.

    >>> control_values(Controls(*map(jnp.float32, (0.5, jnp.inf, 0.0)), penalties={"l1": jnp.float32(1)}))
    {'learning_rate': 0.5, 'clip': inf, 'weight_decay': 0.0, 'l1': 1.0}
    """
    values = {**controls._asdict(), **controls.penalties}
    return {name: float(value) for name, value in values.items() if name != "penalties"}


def changed(controls: Controls, wanted: Mapping[str, float]) -> tuple[Controls, str]:
    """The controls with other values, and a description of the changes.

    >>> before = Controls(*map(jnp.float32, (0.1, jnp.inf, 0.0)), penalties={"l1": jnp.float32(1)})
    >>> changed(before, {"learning_rate": 0.5, "l1": 0})[1]
    'learning_rate 0.1 → 0.5, l1 1 → 0'
    """
    changes = []
    for name, value in wanted.items():
        is_penalty = name in controls.penalties
        old = controls.penalties[name] if is_penalty else getattr(controls, name)
        new = jnp.full_like(old, value)  # On the devices of the old one.
        update = {"penalties": {**controls.penalties, name: new}} if is_penalty else {name: new}
        controls = controls._replace(**update)
        changes.append(f"{name} {float(old):g} → {float(new):g}")
    return controls, ", ".join(changes)


def _set(loop: "TrainingLoop", /, **wanted: float) -> str:
    controls, changes = changed(loop.position.state.controls, wanted)
    loop.position.state = loop.position.state.with_controls(controls)
    loop.saver.asked = True  # A resumed run must continue with the new values.
    return changes


def _pause(loop: "TrainingLoop") -> str:
    if loop.paused:
        raise RefusedError("it is paused already; `lapwing resume` continues it")
    loop.pause()
    return f"after step {loop.position.done}"


def _resume(loop: "TrainingLoop") -> str:
    if not loop.paused:
        raise RefusedError("it is not paused")
    loop.resume()
    return f"from step {loop.position.done}"


def _stop(loop: "TrainingLoop") -> str:
    loop.stop("the command stop")
    return f"after step {loop.position.done}, with a checkpoint"


def _checkpoint(loop: "TrainingLoop") -> str:
    loop.saver.asked = True
    return f"of step {loop.position.done}"


def _rollback(loop: "TrainingLoop", to: int | Literal["best"]) -> str:
    before = loop.position.done
    try:
        loop.roll_back(to)
    except CheckpointError as error:
        raise RefusedError(str(error)) from None
    return f"from step {before} to step {loop.position.done}, with new data from there on"


def _laps(loop: "TrainingLoop", every: int) -> str:
    loop.program.timer.every = every
    return f"the phases of one call in {every} are timed" if every else "no phases are timed"


ACTIONS: dict[str, Callable[..., str]] = {
    "set": _set,
    "pause": _pause,
    "resume": _resume,
    "stop": _stop,
    "checkpoint": _checkpoint,
    "rollback": _rollback,
    "laps": _laps,
}
