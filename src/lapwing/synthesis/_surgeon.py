"""Which links to cut, by the error that is left when the others have moved: the optimal brain surgeon (Hassibi and
Stork, 1993).

The error without a link says little about a small machine. Where two links do one link's work, cutting either is
expensive until the other doubles; and a link whose absence costs least may be one that nothing can replace. So the
answers are taken as linear in the weights around where they are, and for each link the least squares solution without
it is computed: its error ranks the links, and its weights are where the next round starts.

With residuals r and their derivatives J, |r + J d|² + damping |d|² is minimal at d = -H⁻¹ Jᵀ r, H = JᵀJ + damping. With
d_q = -w_q it is larger by (d_q + w_q)² / (H⁻¹)_qq. Links are cut one by one, each from the solution before.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._wiring import LOST, Wirings

STEP = 0.01  # of the central differences; a machine is a polynomial of low degree between the kinks of its compares
DAMPING = 0.01  # The error that a weight may cost to be moved by 1.

LARGE = 1e6


class Surgery(NamedTuple):
    """Links in the order in which they are cut, the predicted error after each cut, and the weights then."""

    links: list[int]
    errors: list[float]
    weights: list[np.ndarray]


def surgery(
    residuals: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, allowed: np.ndarray, count: int
) -> Surgery:
    """Cuts `count` links of those `allowed`, one after the other, each the one that the others replace best.

    **Arguments**: `residuals` of the weights, whose squares sum up to the error. The weights that stay may all move.

    >>> double = lambda w: np.array([w[0] + w[1] - 2.0, 0.1 * w[2]])
    >>> found = surgery(double, np.array([1.0, 1.0, 0.5]), np.ones(3, bool), 2)
    >>> found.links, found.weights[-1].round(1).tolist()
    ([2, 0], [0.0, 2.0, 0.0])
    """
    weights = np.asarray(weights, np.float64)
    here = _finite(residuals(weights))
    slopes = np.stack([_slope(residuals, weights, i) for i in range(len(weights))], axis=1)
    inverse = np.linalg.inv(slopes.T @ slopes + DAMPING * np.eye(len(weights)))
    move = -inverse @ (slopes.T @ here)
    found, left = Surgery([], [], []), allowed.copy()
    for _ in range(min(count, int(allowed.sum()))):
        spread = np.maximum(np.diag(inverse), 1e-12)
        cost = np.where(left, (weights + move) ** 2 / spread, np.inf)
        q = int(np.argmin(cost))
        column = inverse[:, q].copy()
        move = move - column * (move[q] + weights[q]) / spread[q]
        inverse -= np.outer(column, column) / spread[q]
        left[q] = False
        gone = [*found.links, q]
        moved = weights + move
        moved[gone] = 0.0
        found.links.append(q)
        found.errors.append(float(np.sum((here + slopes @ move) ** 2)))
        found.weights.append(moved)
    return found


class Replaced(NamedTuple):
    """Links that are cut, the weights of those that replace them, and the error then."""

    links: np.ndarray
    leaves: np.ndarray
    error: float


def replaceable(
    wirings: Wirings,
    wiring: np.ndarray,
    leaves: np.ndarray,
    kept: np.ndarray,
    *,
    links: np.ndarray,
    count: int,
    within: float,
) -> Replaced:
    """At most `count` of these links of a machine, as many as the others replace with an error `within`; one, if they
    can replace none. The errors are those of the machine, not of its linear form, and need no training."""
    here, residuals = np.flatnonzero(kept & wirings.soft), wirings.residuals(wiring)

    def with_weights(weights: np.ndarray) -> np.ndarray:
        moved = leaves.copy()
        moved[here] = weights
        return moved

    def error(leaves: np.ndarray, rest: np.ndarray) -> float:
        return float(np.nan_to_num(wirings.errors(wiring, leaves, rest[None])[0], nan=LOST))

    found = surgery(
        lambda weights: np.asarray(residuals(with_weights(weights), kept)),
        leaves[here],
        np.isin(here, links),
        count,
    )
    rest, ways = kept.copy(), []
    for link, weights in zip(here[found.links], found.weights, strict=True):
        rest[link] = False
        both = [(error(each, rest), i, each) for i, each in enumerate((leaves, with_weights(weights)))]
        smaller, _, moved = min(both)
        ways.append(Replaced(np.flatnonzero(kept & ~rest), moved, smaller))
    return next((way for way in reversed(ways) if way.error <= within), ways[0])


def _slope(residuals: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, i: int) -> np.ndarray:
    up, down = (weights + sign * STEP * np.eye(len(weights))[i] for sign in (1, -1))
    return (_finite(residuals(up)) - _finite(residuals(down))) / (2 * STEP)


def _finite(numbers: np.ndarray) -> np.ndarray:
    """In float64, with large numbers for those that are not finite: such a link is not cut."""
    return np.clip(np.nan_to_num(np.asarray(numbers, np.float64), nan=LARGE), -LARGE, LARGE)
