"""The actions behind the commands to a running run.

The journal's table (`lapwing.journal.COMMANDS`) says which commands there are and checks their arguments before they
come here. A command is carried out between two calls of the device, and changes numbers that are in the state already,
so nothing is compiled again. A command that the run cannot carry out now is refused, with the reason.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import LapwingError, suggestion
from lapwing.journal import Command

from ._checkpoints import CheckpointError
from ._optimizer import OWN
from ._state import Controls

if TYPE_CHECKING:
    from ._loop import TrainingLoop


_HELP = "hyperparameter of the optimizer"


class RefusedError(LapwingError, ValueError):
    """Why a command is not carried out."""


def announce(loop: "TrainingLoop") -> None:
    """Writes what `set` can change into the run folder, for the board and the command line."""
    if loop.run:
        state = loop.position.state
        about = {
            name: {"type": "int" if jnp.issubdtype(value.dtype, jnp.integer) else "float", "help": _HELP}
            for name, value in state.controls.items()
            if name not in OWN
        }
        about |= {
            name: {"type": "float", "help": "weight of a penalty", "low": 0} for name in state.penalties
        }
        loop.run.announce_controls(control_values(state.controls), about)


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
    """The values of the controls.

    >>> control_values({"learning_rate": jnp.float32(0.5), "clip": jnp.float32(jnp.inf)})
    {'learning_rate': 0.5, 'clip': inf}
    """
    # As a list: jax would sort the names of a dict.
    return dict(zip(controls, map(float, jax.device_get(list(controls.values()))), strict=True))


def changed(controls: Controls, wanted: Mapping[str, float]) -> dict[str, jax.Array]:
    """The new values of some controls, as arrays like the old ones.

    **Raises** `RefusedError` for a value that the array cannot hold.

    >>> changed({"learning_rate": jnp.float32(0.1)}, {"learning_rate": 0.5})
    {'learning_rate': Array(0.5, dtype=float32)}
    >>> changed({"learning_rate": jnp.float32(0.1)}, {"learning_rate": 1e39})
    Traceback (most recent call last):
    lapwing.train._control.RefusedError: learning_rate=1e+39 would be inf as float32; give a number that it can hold
    """
    new = {}
    for name, value in wanted.items():
        if name not in controls:
            raise RefusedError(f"{name!r} cannot be set; {suggestion(name, controls)}")
        old = controls[name]
        with np.errstate(over="ignore"):
            held = float(np.asarray(value).astype(old.dtype))
        if jnp.issubdtype(old.dtype, jnp.floating) and abs(held) < jnp.finfo(old.dtype).tiny:
            held = 0.0  # XLA computes with 0 for what is smaller than the smallest normal number.
        is_lost = held == 0 != value or math.isinf(held) != math.isinf(value)
        if is_lost or (jnp.issubdtype(old.dtype, jnp.integer) and held != value):
            raise RefusedError(
                f"{name}={value:g} would be {held:g} as {old.dtype}; give a number that it can hold"
            )
        new[name] = jnp.full_like(old, held)  # On the devices of the old one.
    return new


def _set(loop: "TrainingLoop", /, **wanted: float) -> str:
    position = loop.position
    before = position.state.controls
    new = changed(before, wanted)
    position.state = position.state.with_controls(new)
    loop.saver.asked = True  # A resumed run must continue with the new values.
    return ", ".join(
        f"{name} {float(before[name]):g} → {float(value):g}"
        + (position.effective_now(float(value)) if name == position.rate_name else "")
        for name, value in new.items()
    )


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
