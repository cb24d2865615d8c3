"""Gradients that are added over parts of a batch, or over successive batches, must be those of all examples at once."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import PyTree

from ._partition import by_path
from ._report import Report, fail


def accumulation(
    gradient: Callable[[PyTree, PyTree], PyTree],
    params: PyTree,
    batch: PyTree,
    parts: Sequence[PyTree],
    *,
    in_proportion: bool = False,
) -> Report:
    """The mean of the gradients of the parts of a batch must be the gradient of the whole batch.

    `gradient(params, batch)` is that of the loss. It differs where the loss divides by a count of the part, such as
    that of its unmasked tokens. With `in_proportion`, the whole may have a multiple of it: a sum over the examples that
    is divided by a fixed number weighs each of them in the same way, whatever the parts.

    >>> import jax, jax.numpy as jnp
    >>> x, mask = jnp.arange(4.0), jnp.array([1.0, 1.0, 1.0, 0.0])
    >>> mean = jax.grad(lambda w, b: jnp.sum((w * b[0] - 1) ** 2 * b[1]) / jnp.sum(b[1]))
    >>> accumulation(mean, jnp.ones(()), (x, mask), [(x[:2], mask[:2]), (x[2:], mask[2:])])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the mean gradient of 2 parts of a batch is not that of the batch: params is ...
    """
    whole = {
        path: np.asarray(leaf, np.float64)
        for path, leaf in by_path(gradient(params, batch), "params").items()
    }
    each = [by_path(gradient(params, part), "params") for part in parts]
    means = {path: np.mean([np.asarray(part[path], np.float64) for part in each], axis=0) for path in whole}
    factor = 1.0
    if in_proportion:
        squares = sum(float(np.sum(leaf**2)) for leaf in whole.values())
        factor = sum(float(np.sum(whole[path] * mean)) for path, mean in means.items()) / (squares or 1.0)
    for path, leaf in whole.items():
        size = float(np.max(np.abs(factor * leaf), initial=0.0))
        off = float(np.max(np.abs(means[path] - factor * leaf), initial=0.0))
        if np.isfinite(leaf).all() and not np.isfinite(off):
            fail(
                "optimizer",
                f"the gradient of {path} is finite for a batch, and not for one of its {len(parts)} parts",
                "what the loss divides by: a part may have no example (or no token) that counts",
                [path],
            )
        if off > 1e-3 * size and off > 1e-7:
            fail(
                "optimizer",
                f"the mean gradient of {len(parts)} parts of a batch is not that of the batch: {path} is off by "
                f"{off / size if size else np.inf:.1%}, so how much an example counts depends on the accumulation",
                "what the loss divides by: with a mask, parts have different counts; add sums, and divide once by the "
                "count of the whole batch (or by a fixed number)",
                [path],
            )
    return Report(
        "optimizer", f"{len(parts)} parts have the gradient of the whole batch", {"parts": len(parts)}
    )
