"""What the rewriting decided, for `explain` to tell: notes are kept only while somebody listens."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Literal

from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core, source_info_util

Role = Literal["value", "gradient of the operand", "gradient of the weight", "computed again"]


@dataclasses.dataclass
class Notes:
    left: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    """Place in the source and role -> why a product was left in the loop, or alone."""
    merged: list[list[str]] = dataclasses.field(default_factory=list)
    """Places of the products that became one."""


_listener: contextvars.ContextVar[Notes | None] = contextvars.ContextVar("notes", default=None)
rewriting_off: contextvars.ContextVar[bool] = contextvars.ContextVar("rewriting_off", default=False)


@contextlib.contextmanager
def listening() -> Iterator[Notes]:
    notes = Notes()
    token = _listener.set(notes)
    try:
        yield notes
    finally:
        _listener.reset(token)


@contextlib.contextmanager
def without_rewriting() -> Iterator[None]:
    """Every loop runs as it was written: what `explain` compares with.

    The mark on the trace keeps jax from handing a jitted function traced in here to somebody outside.
    """
    token = rewriting_off.set(True)
    try:
        with set_xla_metadata(lapwing="as_written"):
            yield
    finally:
        rewriting_off.reset(token)


def site(eqn: core.JaxprEqn) -> str:
    """Where in the user's source the equation comes from: file, line and column."""
    return source_info_util.summarize(eqn.source_info).rsplit(" (", 1)[0]


def note_left(eqn: core.JaxprEqn, role: Role, why: str) -> None:
    if (notes := _listener.get()) is not None:
        notes.left[site(eqn), role] = why


def note_merged(eqns: list[core.JaxprEqn]) -> None:
    if (notes := _listener.get()) is not None:
        notes.merged.append([site(eqn) for eqn in eqns])
