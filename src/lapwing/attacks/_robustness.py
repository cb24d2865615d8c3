"""Accuracy with and without an attack, with confidence intervals.

A share of a few hundred examples is an estimate, so it comes with its Wilson interval, which is sound near 0 and 1 too.
Each example has its own key, so the numbers do not depend on the batch size.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._attack import Attack, keys_of

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Share:
    """How many of `count` examples are right.

    >>> str(Share(90, 100)), Share(90, 100).accuracy
    ('90.0% (82.6 to 94.5)', 0.9)
    """

    right: int
    count: int

    @property
    def accuracy(self) -> float:
        return self.right / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the accuracy (Wilson)."""
        z2 = _NORMAL_95**2
        middle = (self.accuracy + z2 / (2 * self.count)) / (1 + z2 / self.count)
        variance = self.accuracy * (1 - self.accuracy) / self.count + z2 / (4 * self.count**2)
        half = _NORMAL_95 * math.sqrt(variance) / (1 + z2 / self.count)
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.accuracy:.1%} ({100 * low:.1f} to {100 * high:.1f})"

    def to_json(self) -> dict[str, Any]:
        return {
            "right": self.right,
            "count": self.count,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
        }


@dataclass(frozen=True)
class Robustness:
    """The result of an attack on a classifier: `after[r]` are the examples still right after r + 1 restarts.

    >>> found = Robustness(Attack(eps=0.3), 0.3, Share(99, 100), (Share(94, 100), Share(91, 100)))
    >>> found.robust.accuracy, [share.right for share in found.after]
    (0.91, [94, 91])
    """

    attack: Attack
    eps: float
    natural: Share
    after: tuple[Share, ...]

    @property
    def robust(self) -> Share:
        return self.after[-1]

    def to_json(self) -> dict[str, Any]:
        return {
            "eps": self.eps,
            "natural": self.natural.to_json(),
            "robust": self.robust.to_json(),
            "after_restarts": [share.to_json() for share in self.after],
        }


def robustness(
    predict: Callable[[Any, Float[Array, "examples ..."]], Float[Array, "examples classes"]],
    params: Any,
    images: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    attack: Attack,
    key: Key[Array, ""],
    *,
    eps: Iterable[float] = (),
    batch_size: int = 1000,
) -> list[Robustness]:
    """Attacks all examples with the attack's own eps, or once with each of `eps`; compiles once.

    >>> images, labels = jnp.array([[0.9, 0.1], [0.5, 0.4], [0.2, 0.4]]), jnp.array([0, 0, 0])
    >>> found, = robustness(lambda params, x: x, None, images, labels, Attack(eps=0.2, steps=5), jax.random.key(0))
    >>> found.natural.right, found.robust.right
    (2, 1)
    """
    images, labels = np.asarray(images), np.asarray(labels)
    keys = keys_of(key, len(labels))
    size = min(batch_size, len(labels))

    @jax.jit
    def right(params: Any, x: Any, y: Any, keys: Array, radius: Any) -> tuple[Array, Array]:
        found = attack(lambda x: predict(params, x), x, y, keys, eps=radius)
        # Not from the attack alone: an example that is wrong as it is needs no attack.
        natural = jnp.argmax(predict(params, x), axis=1) == y
        return natural, natural & ~found.fooled_after

    def measured(radius: float) -> Robustness:
        natural, robust = [], []
        for first in range(0, len(labels), size):
            which = np.arange(first, first + size)
            batch = which % len(labels)  # All batches have one size; the wrapped examples are dropped below.
            one, many = right(params, images[batch], labels[batch], keys[batch], np.float32(radius))
            natural.append(np.asarray(one)[which < len(labels)])
            robust.append(np.asarray(many)[:, which < len(labels)])
        shares = [Share(int(row.sum()), len(row)) for row in np.concatenate(robust, axis=1)]
        whole = np.concatenate(natural)
        return Robustness(attack, radius, Share(int(whole.sum()), len(whole)), tuple(shares))

    return [measured(float(radius)) for radius in (tuple(eps) or (attack.eps,))]
