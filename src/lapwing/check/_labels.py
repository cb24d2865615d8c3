"""Labels that do not belong to what they label: not shifted, shifted twice, counted where there is only padding.

The program of the loss shows which numbers are the labels and which outputs of the model they choose among
(`_tokens.py`). Their values, on one batch, tell by how many positions they are ahead of the tokens that the model sees,
and other outputs in some positions tell whether the loss counts these positions.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._classes import check_classes
from ._fresh import examples_of
from ._influence import is_drawable
from ._jaxprs import place
from ._partition import is_array, partition
from ._program import Program, read
from ._report import CheckInputError, Report, fail
from ._tokens import Choice, choices, shift, token_lookups

_PADDED = 0.15  # The fraction of positions from which on padding matters.
_TORN = 8


def labels(loss: Callable[..., Any], params: PyTree, batch: PyTree) -> Report:
    """The labels of `loss(params, batch)` must belong to the outputs that they are compared with.

    It finds the labels of a next-token loss that are not shifted, or shifted twice, a loss that counts padding, and a
    mask that is inverted; labels that are counted from one, and negative marks that count as the last class. A loss
    without integer labels is not read.

    >>> import jax, jax.numpy as jnp
    >>> def loss(table, tokens):
    ...     odds = jax.nn.log_softmax(jnp.cumsum(table[tokens], 1))
    ...     return -jnp.mean(jnp.take_along_axis(odds, tokens[..., None], -1))
    >>> tokens = jax.random.randint(jax.random.key(0), (4, 12), 0, 9)
    >>> labels(loss, jax.random.normal(jax.random.key(1), (9, 9)), tokens)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the label at time t is the token that the model sees at time t (...
    """
    program = read(loss, params=params, batch=batch)
    check_classes(program, params, [batch])
    view = TokenView(program, params, batch)
    message = check_shift(view)
    check_padding(view, program, params, batch)
    return Report("labels", message, {"choices": len(view.found)})


class TokenView:
    """The labels of a loss, what they choose among, and the tokens that the model reads, with their values."""

    def __init__(self, program: Program, params: Any, batch: Any) -> None:
        self.found: list[Choice] = choices(program)
        if not self.found:
            raise CheckInputError(
                "no integers of the batch choose among the outputs of the model: nothing to compare"
            )
        self._program, self._args = program, (params, batch)
        self.tokens = [var for var in token_lookups(program) if len(jaxprs.shape(var)) >= 2]
        sequences = [each for each in self.found if len(jaxprs.shape(each.labels)) >= 2]
        self.choice = (sequences or self.found)[0]
        atoms = [self.choice.labels, *self.tokens]
        self.labels, *self.token_values = map(np.asarray, program.values(atoms, *self._args))

    def ahead(self) -> tuple[int, core.Var, np.ndarray] | None:
        """How far the labels are ahead of the tokens, and these."""
        for var, tokens in zip(self.tokens, self.token_values, strict=True):
            found = shift(self.labels, tokens)
            if found is not None:
                return found, var, tokens
        return None

    def reach(self, var: core.Var, tokens: np.ndarray, seed: int = 0) -> int | None:
        """How far ahead of their own time the outputs of the model see, at most 3; −1 if they see not even that."""
        random = np.random.default_rng(seed)
        run = self._program.evaluator([self.choice.logits], [var])
        before = np.asarray(run(*self._args, others=[tokens])[0], np.float64)
        cut = tokens.shape[-1] // 2
        for ahead in (3, 2, 1, 0):
            if cut + ahead >= tokens.shape[-1]:
                continue
            other = tokens.copy()
            here = other[..., cut + ahead]
            other[..., cut + ahead] = random.permutation(np.unique(tokens))[0]
            same = other[..., cut + ahead] == here
            other[..., cut + ahead] = np.where(
                same, np.roll(np.unique(tokens), 1)[0], other[..., cut + ahead]
            )
            after = np.asarray(run(*self._args, others=[other])[0], np.float64)
            if cut < before.shape[-2] and not np.allclose(
                before[..., cut, :], after[..., cut, :], rtol=1e-5, atol=1e-7
            ):
                return ahead
        return -1

    @functools.cached_property
    def _loss_of_logits(self) -> tuple[float, np.ndarray, Callable[[np.ndarray], float]]:
        """The loss, what the labels choose among, and the loss with something else in its place."""
        loss, logits = self._program.closed.jaxpr.outvars[0], self.choice.logits
        value, chosen = map(np.asarray, self._program.values([loss, logits], *self._args))
        run = self._program.evaluator([loss], [logits])
        return float(value), chosen, lambda other: float(run(*self._args, others=[other])[0])

    def counts(self, where: np.ndarray, seed: int = 0) -> bool:
        """Whether the loss changes with the outputs of the model in these positions."""
        value, logits, loss = self._loss_of_logits
        noise = np.random.default_rng(seed).normal(size=logits.shape) * (
            np.std(logits[np.isfinite(logits)]) + 1.0
        )
        other = np.where(where[..., None], logits + noise, logits).astype(logits.dtype)
        return abs(loss(other) - value) > 1e-6 * max(1.0, abs(value))


def check_shift(view: TokenView) -> str:
    found = view.ahead()
    if found is None:
        return "the labels are not those of a next-token loss"
    ahead, var, tokens = found
    reach = view.reach(var, tokens)
    where = place(view.choice.eqn)
    if ahead == 0 and reach == 0:
        fail(
            "labels",
            f"the label at time t is the token that the model sees at time t ({where}): the labels are not shifted, "
            "and copying the input is a perfect prediction",
            "the shift: predict tokens[:, 1:] from the outputs for tokens[:, :-1]; some models shift inside",
            [where],
        )
    if ahead >= 2 and reach is not None and reach < ahead - 1 and not _others_next(view):
        fail(
            "labels",
            f"the label at time t is the token at time t + {ahead} ({where}), and the outputs of the model see tokens "
            f"up to time t{f' + {reach}' if reach > 0 else ''}: the labels are shifted {ahead} times",
            "the shift: it happens in the data and in the loss, or in the model; keep one of them",
            [where],
        )
    return f"the labels are {ahead} ahead of the tokens that the model sees"


def _others_next(view: TokenView) -> bool:
    """Whether there are several sets of labels, as where several tokens are predicted at once."""
    return len(view.found) > 1


def check_padding(view: TokenView, program: Program, params: Any, batch: Any) -> None:
    outputs = program.closed.jaxpr.outvars
    if view.labels.ndim < 2 or jaxprs.shape(outputs[0]) != ():
        return
    named = _mask_leaf(batch, view.labels.shape)
    padding = named[1] if named else _ragged(view.labels)
    if padding is None or not _PADDED <= padding.mean() <= 1 - _PADDED:
        return
    counts_padding = view.counts(padding)
    counts_rest = view.counts(~padding)
    where, what = place(view.choice.eqn), f"{padding.mean():.0%} of the positions are padding"
    if counts_padding and not counts_rest:
        fail(
            "labels",
            f"the loss counts the padding and nothing else ({where}): {what}"
            + (f", by {named[0]}" if named else ""),
            "the mask of the loss, which is inverted: it should be 1 where there is a label",
            [where],
        )
    if counts_padding:
        fail(
            "labels",
            f"the loss counts the padding ({where}): {what}"
            + (
                f", by {named[0]}, which does not reach the loss"
                if named
                else f", with label {view.labels[padding][0]}"
            ),
            "the mask of the loss: jnp.sum(losses * mask) / jnp.sum(mask)",
            [where],
        )


def _mask_leaf(batch: Any, shape: Sequence[int]) -> tuple[str, np.ndarray] | None:
    """A mask of padding in the batch, and where the padding is: a run of zeros (or of ones) at the end of rows."""
    for path, leaf in zip(*partition(batch, is_array, "batch")[:2], strict=True):
        if not is_drawable(leaf) or np.shape(leaf) != tuple(shape):
            continue
        values = np.asarray(leaf)
        if set(np.unique(values).tolist()) == {0, 1}:
            for padding in (values == 0, values == 1):
                if _is_at_end(padding) and not _is_at_end(~padding):
                    return path, padding
    return None


def _is_at_end(padding: np.ndarray) -> bool:
    """Whether each row is a part without padding, then one with it."""
    return bool((np.diff(padding.astype(int), axis=-1) >= 0).all() and not padding.all(axis=-1).any())


def _ragged(values: np.ndarray) -> np.ndarray | None:
    """Where rows end with a run of one value that is nowhere else, in runs of different lengths: padding."""
    last = values[..., -1].ravel()
    kinds, counts = np.unique(last, return_counts=True)
    padding = values == kinds[np.argmax(counts)]
    lengths = np.unique(padding.sum(axis=-1))
    return padding if _is_at_end(padding) and len(lengths) > 2 and len(np.unique(values)) > 3 else None


def check_torn(batches: Sequence[PyTree], read_labels: Callable[[Any], Any] | None = None) -> str:
    """The same input must have the same label whenever it comes; torn pairs have another one in each epoch."""
    seen: dict[bytes, Any] = {}
    again, other, first = 0, 0, ""
    for number, batch in enumerate(batches):
        for example, (row, label) in enumerate(examples_of(batch, read_labels)):
            again += row in seen
            if seen.setdefault(row, label) != label:
                other += 1
                first = first or f"batch {number}, example {example}"
    if again >= _TORN and other > 0.5 * again:
        fail(
            "labels",
            f"inputs that come again have another label: {other} of {again}, first in {first}",
            "the shuffling: inputs and labels should be put in the same order, by one permutation for both",
            [first],
        )
    return f"{again} inputs came again, {other} with another label" if again else ""
