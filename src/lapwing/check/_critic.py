"""An advantage that is not detached: the loss of the policy moves the critic.

`−log p · (reward − value)` is the loss of a policy, `(reward − value)²` that of the values. In the first, the value is
a constant. Without `stop_gradient` the policy is helped by values that are wrong, and they drift.
"""

from collections.abc import Iterable
from typing import Any

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail

_SAME = SHAPES - {"stop_gradient"}
_LINEAR = _SAME | {"add", "add_any", "sub", "neg", "slice", "concatenate", "pad"}
_PICKED = _SAME | {"gather", "slice", "neg", "reduce_sum", "select_n", "mul"}


def check_critic(program: Program) -> None:
    """Raises if the logarithm of a probability is multiplied by what a regression of values is made of."""
    moved = _reached(program, program.inputs["params"].values())
    values = [var for eqn in program.eqns for var in _regressed(program, eqn, moved)]
    if not values:
        return
    for eqn in program.eqns:
        if eqn.primitive.name != "mul" or not all(among(each, moved) for each in eqn.invars):
            continue
        for log_p, other in (eqn.invars, eqn.invars[::-1]):
            if not _is_log_probability(program, log_p):
                continue
            if any(among(other, _reached(program, [value], _LINEAR, moved)) for value in values):
                fail(
                    "numbers",
                    f"the logarithm of a probability is multiplied by an advantage that is not detached "
                    f"({place(eqn)}): the loss of the policy has a gradient with respect to the values, which are also "
                    "fitted to the rewards, and pulls them away from these",
                    "jax.lax.stop_gradient around the advantage in the loss of the policy",
                    [place(eqn)],
                )


def _reached(program: Program, start: Iterable[Any], through: Any = None, factors: Any = ()) -> set[core.Var]:
    """What has a gradient with respect to some variables: nothing behind a stop_gradient, and with `through` only what
    is linear in them, with factors that are not among `factors`."""
    found = set(start)
    for eqn in program.eqns:
        name, mine = eqn.primitive.name, [each for each in eqn.invars if among(each, found)]
        if not mine or name == "stop_gradient":
            continue
        is_scaled = name in ("mul", "div") and eqn.invars[0] in mine and not among(eqn.invars[1], factors)
        is_scaled = is_scaled or (
            name == "mul" and eqn.invars[1] in mine and not among(eqn.invars[0], factors)
        )
        if through is None or name in through or is_scaled:
            found.update(eqn.outvars)
    return found


def _regressed(program: Program, eqn: core.JaxprEqn, moved: set[core.Var]) -> list[core.Var]:
    """The values v of a square (v − r)², where r has no gradient."""
    name = eqn.primitive.name
    is_square = name == "square" or (name == "integer_pow" and eqn.params["y"] == 2)
    if not is_square and not (name == "mul" and eqn.invars[0] is eqn.invars[1]):
        return []
    difference = program.origin(eqn.invars[0], _SAME)
    if difference is None or difference.primitive.name != "sub":
        return []
    mine = [among(each, moved) for each in difference.invars]
    if sum(mine) != 1:
        return []
    value = program.source(difference.invars[mine.index(True)], _SAME)
    return [value] if isinstance(value, core.Var) else []


def _is_log_probability(program: Program, atom: Any) -> bool:
    """x − log Σ exp(x), from which some are picked."""
    for eqn in program.ancestors(atom, _PICKED):
        if eqn.primitive.name == "sub":
            log = program.origin(eqn.invars[1], _SAME)
            if log is not None and log.primitive.name == "log":
                return jaxprs.size(eqn.outvars[0]) > 1
    return False
