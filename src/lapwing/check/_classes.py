"""Labels that are no classes: counted from one, or marks that count as the last class.

A loss of K classes has labels 0 … K − 1. `one_hot(K, K)` is a row of zeros, a negative index is counted from the end,
and neither raises. Marks on purpose (−1, −100, 255: not to be counted) are common: what matters is what the loss does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, among
from ._report import fail
from ._tokens import Choice, choices

_LABELS_PER_CLASS = 4
_CHANGED = SHAPES | {"mul", "add", "sub", "neg", "div"}


def check_classes(program: Program, params: PyTree, batches: Sequence[PyTree]) -> str:
    """The labels with which a loss chooses among K outputs, or that it makes one-hot, must be 0 … K − 1."""
    found = [(each.labels, jaxprs.shape(each.logits)[-1], each.eqn) for each in choices(program)]
    found += list(_one_hots(program))
    if not found:
        return ""
    run = program.evaluator([labels for labels, _, _ in found])
    columns = zip(*(run(params, batch) for batch in batches), strict=True)
    for (_, classes, eqn), values in zip(found, columns, strict=True):
        check_counted_from_one(np.concatenate([np.ravel(each) for each in values]), classes, place(eqn))
    for each in choices(program):
        _check_negative(each, program, params, batches[0])
    return f"labels of {max(classes for _, classes, _ in found)} classes"


def check_counted_from_one(labels: np.ndarray, classes: int, where: str) -> None:
    """Raises if the labels are 1 … K: 0 never comes, and K is no class."""
    if labels.size < _LABELS_PER_CLASS * classes or labels.dtype.kind not in "iu" or classes < 2:
        return
    if labels.min() == 1 and labels.max() == classes:
        fail(
            "labels",
            f"the labels are 1 to {classes}, where {classes} classes are 0 to {classes - 1} ({where}): they are "
            f"counted from one, class {classes} is out of range ({np.mean(labels == classes):.0%} of "
            f"{labels.size} labels; its one-hot is a row of zeros), and class 0 never comes",
            "the labels: subtract 1, or map their names to 0, 1, 2, …",
            [where],
        )


def _one_hots(program: Program) -> list[tuple[core.Var, int, core.JaxprEqn]]:
    """Integers of the batch that are made one-hot and compared with outputs of the model, entry by entry."""
    of_params, of_batch, found = program.dependent("params"), program.dependent("batch"), []
    for eqn in program.eqns:
        if eqn.primitive.name != "eq" or among(eqn.outvars[0], of_params):
            continue
        labels = next((atom for atom in eqn.invars if among(atom, of_batch)), None)
        other = next((atom for atom in eqn.invars if not among(atom, of_batch)), None)
        if labels is None or other is None or np.dtype(jaxprs.dtype(labels)).kind not in "iu":
            continue
        shape, made = jaxprs.shape(eqn.outvars[0]), program.origin(other)
        if (
            not shape
            or made is None
            or made.primitive.name != "iota"
            or jaxprs.size(made.outvars[0]) != shape[-1]
        ):
            continue
        if jaxprs.size(labels) * shape[-1] == jaxprs.size(eqn.outvars[0]) and _meets(program, eqn, of_params):
            found.append((labels, shape[-1], eqn))
    return found


def _meets(program: Program, eqn: core.JaxprEqn, of_params: Any) -> bool:
    """Whether what an equation makes, perhaps scaled or smoothed, meets as many outputs of the model."""
    waiting, size, seen = [eqn.outvars[0]], jaxprs.size(eqn.outvars[0]), set()
    while waiting:
        atom = waiting.pop()
        for reader in program.readers.get(atom, ()):
            if reader.primitive.name not in _CHANGED or id(reader) in seen:
                continue
            seen.add(id(reader))
            others = [each for each in reader.invars if each is not atom]
            if any(among(each, of_params) and jaxprs.size(each) == size for each in others):
                return True
            waiting += reader.outvars
    return False


def _check_negative(choice: Choice, program: Program, params: PyTree, batch: PyTree) -> None:
    """An index of −1 is the last class, which a mark that should not count must not be."""
    if choice.eqn.primitive.name != "gather" or jaxprs.shape(program.closed.jaxpr.outvars[0]) != ():
        return
    loss, logits = program.closed.jaxpr.outvars[0], choice.logits
    labels, value, outputs = map(np.asarray, program.values([choice.labels, loss, logits], params, batch))
    classes = outputs.shape[-1]
    marked = (labels < 0) & (labels >= -classes)
    if not marked.any() or marked.all() or not (labels >= 0).any():
        return
    chosen = marked[..., None] & (np.arange(classes) == (labels % classes)[..., None])
    other = np.where(chosen, outputs - 1, outputs).astype(outputs.dtype)
    after = float(program.evaluator([loss], [logits])(params, batch, others=[other])[0])
    if abs(after - float(value)) > 1e-6 * max(1.0, abs(float(value))):
        mark = int(labels[marked][0])
        fail(
            "labels",
            f"{int(marked.sum())} of {labels.size} labels are {mark}, and the loss counts them as class "
            f"{mark % classes} of {classes} ({place(choice.eqn)}): a negative index is counted from the end",
            "the mask of the loss: positions with such a mark should have the weight 0",
            [place(choice.eqn)],
        )
