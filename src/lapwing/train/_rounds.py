"""A training in rounds: after each, the host may change what is trained, and with which loss.

For what a compiled step cannot decide: which links of a machine to prune, and when. The shapes of parameters and
optimizer state stay; what a round is about (which links are kept, which were tried) is part of the parameters, so that
it is in every checkpoint, and a resumed run decides the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import optax

from ._config import ConfigError, FitConfig

Loss = Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]


class Turn(NamedTuple):
    """What to go on with after a round, and a sentence about it for the journal, with its numbers as `fields`. If it
    is `over`, this was the last round."""

    params: Any
    optimizer: optax.OptState
    said: str
    fields: Mapping[str, Any]
    over: bool = False


@dataclass(frozen=True)
class Rounds:
    """After every so many steps `turn(params, optimizer)` is called, with numpy arrays. `loss(params)` gives the loss
    that is compiled for these parameters: asked for at the start and after each turn, and compiled again only when it
    gives another function (the same wiring must give the same one)."""

    every: int
    turn: Callable[[Any, optax.OptState], Turn]
    loss: Callable[[Any], Loss] | None = field(default=None)

    def check(self, config: FitConfig) -> None:
        """Raises an error where a round would end inside a call."""
        if self.every % config.steps_per_call:
            raise ConfigError(
                f"steps_per_call should divide the {self.every} steps of a round, but is {config.steps_per_call}"
            )
