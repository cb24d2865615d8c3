"""Training in rounds: after each round the host may change the parameters and the loss.

For decisions that a compiled step cannot make: which links of a machine to prune, and when. The shapes of parameters
and optimizer state stay the same. What a round depends on (which links are kept, which were tried) is part of the
parameters, so it is in every checkpoint and a resumed run decides the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import optax


class Turn(NamedTuple):
    """The result of a round: new parameters and optimizer state, a sentence for the journal and its numbers. With
    `over`, training ends.

    >>> turn = Turn([0.0, 2.0], None, "pruned 1 of 2 weights", {"pruned": 1})
    >>> turn.message, turn.over
    ('pruned 1 of 2 weights', False)
    """

    params: Any
    optimizer: optax.OptState
    message: str
    fields: Mapping[str, Any]
    over: bool = False


@dataclass(frozen=True)
class Rounds:
    """Calls `turn(params, optimizer)` with numpy arrays after every `every` steps.

    `loss(params)` returns the loss function to compile for these parameters. It is called at the start and after each
    round; training compiles again only when it returns a different function, so equal wirings must give the same one.

    >>> import numpy as np
    >>> def halve(params, optimizer):
    ...     return Turn(params / 2, optimizer, "halved", {"largest": float(abs(params).max() / 2)})
    >>> rounds = Rounds(every=1000, turn=halve)      # Task(rounds=rounds, ...)
    >>> rounds.turn(np.ones(2), None).message
    'halved'
    """

    every: int
    turn: Callable[[Any, optax.OptState], Turn]
    loss: Callable[[Any], Callable[..., Any]] | None = None
