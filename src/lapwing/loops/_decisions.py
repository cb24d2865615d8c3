"""Decisions of the cost model as values: what to do with some products of a loop, and why.

Passes return them with the loop they rewrote. The derivative of a loop is planned later, when jax asks for it, so
`recording` collects the decisions of a whole trace for `explain`.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

from jax.extend import core

from lapwing import jaxprs

Move = Literal["hoist", "merge", "defer", "index", "draw"]
_ROLES: dict[Move, jaxprs.Role] = {
    "hoist": "value",
    "merge": "value",
    "defer": "gradient of the weight",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """Whether a move is made, and what speaks against it. It is true where the move is made."""

    move: Move
    eqns: tuple[core.JaxprEqn, ...]
    taken: bool
    against: str | None = None
    estimate: str | None = None
    """What it saves and costs, where that was estimated."""

    def __bool__(self) -> bool:
        return self.taken

    @property
    def role(self) -> jaxprs.Role | None:
        """The role of the products it is about; None for a decision that is not about products."""
        return _ROLES.get(self.move)

    @property
    def sites(self) -> list[str]:
        """Where in the source they are."""
        return [jaxprs.site(eqn) for eqn in self.eqns]


_recorded: contextvars.ContextVar[list[Decision] | None] = contextvars.ContextVar("recorded", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[Decision]]:
    """A list that receives the decisions made in here."""
    decisions: list[Decision] = []
    token = _recorded.set(decisions)
    try:
        yield decisions
    finally:
        _recorded.reset(token)


def record(decisions: Iterable[Decision]) -> None:
    if (recorded := _recorded.get()) is not None:
        recorded.extend(decisions)


def left_alone(loop: jaxprs.Loop, why: str) -> list[Decision]:
    """The decisions about a loop that no pass may touch: against every move of its products."""
    products = tuple(eqn for eqn in jaxprs.equations(loop.jaxpr) if eqn.primitive in jaxprs.PRODUCTS)
    return [Decision(move, products, False, why) for move in _ROLES]
