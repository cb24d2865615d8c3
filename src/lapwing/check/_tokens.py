"""Where a loss reads its labels and its tokens, found in its program: the log-probabilities of which it picks some by
integers of the batch (or multiplies by a one-hot of them), and the tables of the parameters that it looks tokens up in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lapwing import jaxprs

from ._program import SHAPES, Program, among

_INDEXING = SHAPES | frozenset(
    [
        "slice",
        "dynamic_slice",
        "select_n",
        "add",
        "concatenate",
        "lt",
        "clamp",
        "min",
        "max",
        "pad",
        "rem",
        "sub",
    ]
)


@dataclass(frozen=True)
class Choice:
    """`labels` choose among the last axis of `logits`."""

    logits: core.Var
    labels: core.Var
    eqn: core.JaxprEqn


def choices(program: Program) -> list[Choice]:
    """All places where integers of the batch choose among outputs of the model, one label for each position."""
    of_params, of_batch = program.dependent("params"), program.dependent("batch")
    inputs = set(program.inputs["params"].values())
    found = []
    for eqn in program.eqns:
        logits = eqn.invars[0] if eqn.invars else None
        is_output = among(logits, of_params) and not among(program.source(logits), inputs)
        if eqn.primitive.name == "gather" and is_output and among(eqn.invars[1], of_batch):
            found += _choice(program, logits, eqn.invars[1], of_batch, eqn)
        if eqn.primitive.name == "mul":
            for mine, other in (eqn.invars, eqn.invars[::-1]):
                hot = program.origin(other, SHAPES | {"neg"})
                if hot is None or hot.primitive.name != "eq" or not _is_integer(hot.invars[0]):
                    continue
                if among(mine, of_params) and among(hot.outvars[0], of_batch):
                    for operand in hot.invars:
                        if among(operand, of_batch):
                            found += _choice(program, mine, operand, of_batch, eqn)
    return found


def _choice(program: Program, logits: Any, indices: Any, of_batch: Any, eqn: Any) -> list[Choice]:
    lead = jaxprs.shape(logits)[:-1]
    labels = next(
        (var for var in integers_behind(program, indices, of_batch) if jaxprs.shape(var) == lead), None
    )
    return [] if labels is None or not lead else [Choice(logits, labels, eqn)]


def token_lookups(program: Program) -> list[core.Var]:
    """The integers of the batch that a table of the parameters is read with."""
    of_batch, inputs = program.dependent("batch"), set(program.inputs["params"].values())
    found = []
    for eqn in program.eqns:
        if eqn.primitive.name == "gather" and among(program.source(eqn.invars[0]), inputs):
            rank = len(jaxprs.shape(eqn.outvars[0])) - 1
            fits = (
                var
                for var in integers_behind(program, eqn.invars[1], of_batch)
                if len(jaxprs.shape(var)) == rank
            )
            found += [var for var in [next(fits, None)] if var is not None]
        if eqn.primitive.name == "dot_general":
            hot = program.origin(eqn.invars[0])
            if hot is not None and hot.primitive.name == "eq" and _is_integer(hot.invars[0]):
                rank = len(jaxprs.shape(hot.outvars[0])) - 1
                fits = (
                    var
                    for operand in hot.invars
                    for var in integers_behind(program, operand, of_batch)
                    if len(jaxprs.shape(var)) == rank
                )
                found += [var for var in [next(fits, None)] if var is not None]
    return list(dict.fromkeys(found))


def integers_behind(program: Program, atom: Any, of_batch: Any) -> Iterator[core.Var]:
    """The integers behind an index, the nearest first."""
    waiting, seen = [atom], set()
    while waiting:
        atom = waiting.pop(0)
        if not among(atom, of_batch) or atom in seen or not _is_integer(atom):
            continue
        seen.add(atom)
        yield atom
        made = program.makers.get(atom)
        if made is not None and made.primitive.name in _INDEXING:
            waiting += made.invars


def _is_integer(atom: Any) -> bool:
    return jnp.issubdtype(jaxprs.dtype(atom), jnp.integer)


def shift(labels: np.ndarray, tokens: np.ndarray) -> int | None:
    """By how many positions the labels are ahead of the tokens along the last axis; None if that cannot be said.

    >>> words = np.random.default_rng(0).integers(0, 50, (4, 12))
    >>> shift(words[:, 1:], words[:, :-1]), shift(words, words), shift(words[:, 2:], words)
    (1, 0, 2)
    """
    if labels.ndim != tokens.ndim or labels.shape[:-1] != tokens.shape[:-1] or labels.shape[-1] < 4:
        return None
    if len(np.unique(tokens)) < 3:
        return None
    shares = {}
    for ahead in range(-3, 4):
        starts = max(0, -ahead), max(0, ahead)
        size = min(labels.shape[-1] - starts[0], tokens.shape[-1] - starts[1])
        if size < 3:
            continue
        ours = labels[..., starts[0] : starts[0] + size]
        theirs = tokens[..., starts[1] : starts[1] + size]
        used = ours >= 0  # Negative labels are those to be ignored.
        # A position whose neighbour is the same token says nothing.
        shares[ahead] = float(np.mean((ours == theirs)[used])) if used.any() else 0.0
    best = max(shares, key=lambda ahead: shares[ahead])
    others = max(share for ahead, share in shares.items() if ahead != best)
    return best if shares[best] >= 0.95 and others < 0.9 else None
