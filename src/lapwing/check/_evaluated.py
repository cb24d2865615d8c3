"""What an evaluation computes before the first step: finite numbers, from the tokens that are not padding."""

from typing import Any

import jax
import numpy as np

from ._influence import changes
from ._partition import by_path
from ._report import fail

_PADDED = 0.1


def check_finite(result: Any, what: str) -> None:
    """Metrics and predictions must be finite, as those of training are."""
    for path, leaf in by_path(result, "").items():
        values = np.asarray(leaf)
        if values.dtype.kind == "f" and np.isnan(values).any():
            fail(
                "modes",
                f"{what} before the first step is not finite: {np.isnan(values).mean():.0%} of {path or 'it'} is nan",
                "a division by a count, or by statistics, that are 0 before the first step of training",
                [path],
            )


def check_masked(predict: Any, batch: Any) -> None:
    """Predictions must not depend on tokens that a mask of the batch calls padding, instead of on the others."""
    if not isinstance(batch, dict):
        return
    arrays = {name: np.asarray(leaf) for name, leaf in batch.items() if np.ndim(leaf) == 2}
    for name, mask in arrays.items():
        if set(np.unique(mask).tolist()) != {0, 1} or not _PADDED <= 1 - mask.mean() <= 1 - _PADDED:
            continue
        if not _ends_with_padding(mask.astype(bool)):
            continue
        for other, tokens in arrays.items():
            if tokens.shape == mask.shape and tokens.dtype.kind in "iu" and len(np.unique(tokens)) > 3:
                _check_inverted(predict, batch, (name, mask.astype(bool)), (other, tokens))


def _ends_with_padding(mask: np.ndarray) -> bool:
    return bool((np.diff(mask.astype(int), axis=1) <= 0).all() and mask[:, 0].all())


def _check_inverted(predict: Any, batch: Any, mask: tuple[str, Any], tokens: tuple[str, Any]) -> None:
    (name, real), (other, values) = mask, tokens
    before = jax.tree.leaves(predict(batch))
    largest = int(values.max())

    def moves(where: np.ndarray) -> bool:
        changed = np.where(where, (values + 1) % (largest + 1), values).astype(values.dtype)
        after = jax.tree.leaves(predict({**batch, other: jax.numpy.asarray(changed)}))
        return any(flags.any() for flags in changes(before, after))

    if moves(~real) and not moves(real):
        fail(
            "labels",
            f"the predictions change with batch[{other!r}] where batch[{name!r}] is 0, and not where it is 1: only "
            "padding is read, so the mask is inverted",
            f"where batch[{name!r}] is used: jnp.where(mask, scores, -inf) keeps what is 1",
            [name],
        )
