"""The loss of a policy, whose terms have a direction: likely is what is rewarded, and entropy is kept.

`−log p · advantage` is minimized, and `+log p · advantage` prefers what is worse. Whether a factor is a reward or a
cost cannot be seen; so it counts as a reward where the batch calls it one (reward, return, advantage).
"""

import re
from collections.abc import Sequence
from typing import Any

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail

_REWARD = re.compile(r"(^|[^a-z])(adv\w*|rewards?|returns?|gae|rets?)([^a-z]|$)", re.IGNORECASE)
_LINEAR = SHAPES | {"reduce_sum", "add", "sub", "neg", "mul", "div"}
_PICKED = SHAPES | {
    "gather",
    "slice",
    "reduce_sum",
    "select_n",
    "mul",
    "exp",
    "sub",
    "clamp",
    "max",
    "min",
    "neg",
}


def check_rewards(program: Program, terms: Sequence[tuple[Any, int]]) -> None:
    """`terms`: the values that the loss is a sum of, with their signs."""
    rewards = _rewards(program)
    policies = [
        (eqn, sign)
        for atom, sign in terms
        for eqn in _products(program, atom)
        if any(among(one, rewards) and _is_likelihood(program, other) for one, other in _pairs(eqn))
    ]
    for eqn, sign in policies:
        if sign > 0:
            fail(
                "numbers",
                f"the loss of a policy has the wrong sign: the logarithm of a probability is multiplied by a reward at "
                f"{place(eqn)} and minimized, so that what is rewarded becomes less likely",
                "the sign: the loss is -mean(log_prob * advantage)",
                [place(eqn)],
            )
    for atom, sign in terms if policies else ():
        eqn = program.makers.get(program.source(atom)) if isinstance(atom, core.Var) else None
        if sign < 0 and eqn is not None and eqn.primitive.name == "mul" and _is_entropy(program, eqn):
            fail(
                "numbers",
                f"the entropy of a policy is minimized (p log p at {place(eqn)} has a negative sign in the loss): it "
                "becomes certain at once, and explores nothing",
                "the sign of the entropy bonus: loss - weight * entropy, where entropy is -sum(p * log(p))",
                [place(eqn)],
            )


def _rewards(program: Program) -> set[core.Var]:
    """What is linear in arrays of the batch that are called rewards."""
    found = {
        var for path, var in program.inputs["batch"].items() if _REWARD.search(path.removeprefix("batch"))
    }
    of_params = program.dependent("params")
    for eqn in program.eqns:
        reads = jaxprs.variables(eqn.invars)
        if eqn.primitive.name in _LINEAR and not found.isdisjoint(reads):
            found.update(var for var in eqn.outvars if var not in of_params)
    return found


def _products(program: Program, atom: Any) -> list[core.JaxprEqn]:
    """A product, or those of which a term is the least, as that of a clipped ratio."""
    eqn = program.makers.get(program.source(atom)) if isinstance(atom, core.Var) else None
    if eqn is not None and eqn.primitive.name in ("min", "max"):
        return [each for operand in eqn.invars for each in _products(program, operand)]
    return [eqn] if eqn is not None and eqn.primitive.name == "mul" else []


def _pairs(eqn: core.JaxprEqn) -> list[tuple[Any, Any]]:
    one, other = eqn.invars
    return [(one, other), (other, one)]


def _is_likelihood(program: Program, atom: Any) -> bool:
    """A log-probability that is picked or summed, or the ratio of probabilities that is made of it."""
    if not among(atom, program.dependent("params")):
        return False
    logs = (each for each in program.ancestors(atom, _PICKED) if each.primitive.name == "sub")
    return any(_is_log_softmax(program, each) for each in logs)


def _is_log_softmax(program: Program, eqn: core.JaxprEqn) -> bool:
    log = program.origin(eqn.invars[1])
    return log is not None and log.primitive.name == "log" and jaxprs.size(eqn.outvars[0]) > 1


def _is_entropy(program: Program, eqn: core.JaxprEqn) -> bool:
    """p log p: the product of a log_softmax and of its exponential, or of its softmax."""
    for p, log_p in _pairs(eqn):
        made, log = program.origin(p), program.origin(log_p)
        if made is None or log is None or log.primitive.name != "sub" or not _is_log_softmax(program, log):
            continue
        if made.primitive.name == "exp" and program.source(made.invars[0]) is log.outvars[0]:
            return True
        if made.primitive.name == "div":
            return True
    return False
