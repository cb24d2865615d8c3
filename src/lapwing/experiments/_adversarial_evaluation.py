"""The robustness of a trained network: the numbers to report, a curve over eps, and pictures of both.

The attacks during training are as weak as time allows; a network can look robust under them and not be. So this uses a
strong attack, on test images that nothing else has used.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lapwing.attacks import Attack, Robustness, robustness
from lapwing.core import new_figure, png_of
from lapwing.models import Cnn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # Multiples of the attack's eps.
_CURVE_RESTARTS = 2
_SHOWN = 8
_BLUE, _RED, _GREY = "#2a7de1", "#d1453b", "#8b949e"


@dataclass(frozen=True)
class Evaluation:
    """The result at the attack's eps, the curve over eps with fewer restarts, and the first images attacked."""

    found: Robustness
    curve: tuple[Robustness, ...]
    images: np.ndarray
    attacked: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray

    def to_json(self) -> dict[str, Any]:
        return {
            "attack": dataclasses.asdict(self.found.attack),
            **self.found.to_json(),
            "curve_restarts": len(self.curve[0].after) if self.curve else 0,
            "curve": [point.to_json() for point in self.curve],
        }


def evaluate(
    network: Cnn,
    images: Float[Array, "examples height width 1"],
    labels: Int[Array | np.ndarray, " examples"],
    attack: Attack,
    key: Key[Array, ""],
    *,
    curve: Sequence[float] = CURVE,
    batch_size: int = 1000,
) -> Evaluation:
    """Attacks all images. `curve` are further radii, as multiples of the attack's eps.

    >>> network = Cnn.init(jax.random.key(0), (8, 8, 1), width=1)
    >>> images, labels = jnp.zeros((3, 8, 8, 1)), jnp.array([0, 1, 2])
    >>> evaluate(network, images, labels, Attack(0.1, steps=2), jax.random.key(0), curve=()).found.natural.count
    3
    """

    def scores(network: Cnn, images: Array) -> Array:
        return network(images)

    (found,) = robustness(scores, network, images, labels, attack, key, batch_size=batch_size)
    few = dataclasses.replace(attack, restarts=min(attack.restarts, _CURVE_RESTARTS))
    radii = [factor * attack.eps for factor in curve]
    points = (
        robustness(scores, network, images, labels, few, key, eps=radii, batch_size=batch_size)
        if radii
        else ()
    )
    first, shown = jnp.asarray(images[:_SHOWN]), jnp.asarray(labels[:_SHOWN])
    attacked = jax.jit(lambda network, key: few(network, first, shown, key).images)(network, key)
    return Evaluation(
        found,
        tuple(points),
        np.asarray(first),
        np.asarray(attacked),
        np.asarray(shown),
        np.asarray(jnp.argmax(network(attacked), axis=1)),
    )


def pictures(evaluation: Evaluation) -> dict[str, bytes]:
    """PNG files by name: the curves, and images with their perturbations and predicted classes."""
    return {
        "robustness.png": png_of(lambda: _curve_figure(evaluation), dpi=130),
        "attacked.png": png_of(lambda: _image_figure(evaluation), dpi=130),
    }


def _curve_figure(evaluation: Evaluation) -> "Figure":
    """Accuracy over eps, and over restarts."""
    figure = new_figure(9, 3.6)
    over_eps, over_restarts = figure.subplots(1, 2, width_ratios=[2, 1])
    curve = evaluation.curve or (evaluation.found,)
    radii, shares = [point.eps for point in curve], [point.robust for point in curve]
    over_eps.plot(radii, [share.accuracy for share in shares], "o-", color=_BLUE)
    low, high = zip(*(share.interval for share in shares), strict=True)
    over_eps.fill_between(radii, low, high, color=_BLUE, alpha=0.2, lw=0)
    over_eps.axvline(evaluation.found.eps, color=_GREY, lw=1, ls=":")
    over_eps.set_ylabel("accuracy under attack")
    after = [share.accuracy for share in evaluation.found.after]
    over_restarts.plot(range(1, len(after) + 1), after, "o-" if len(after) < 20 else "-", color=_BLUE)
    for axes, label in ((over_eps, "eps"), (over_restarts, "restarts")):
        axes.set_xlabel(label)
        axes.set_ylim(0, 1)
        axes.grid(axis="y", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _image_figure(evaluation: Evaluation) -> "Figure":
    count = len(evaluation.labels)
    figure = new_figure(1.1 * count + 1, 3.8)
    grid = np.asarray(figure.subplots(3, count, squeeze=False))
    eps = max(evaluation.found.eps, 1e-6)
    rows = evaluation.images, evaluation.attacked - evaluation.images, evaluation.attacked
    for axes, rows_of, (low, high, colours), name in zip(
        grid,
        rows,
        ((0, 1, "gray"), (-eps, eps, "RdBu"), (0, 1, "gray")),
        ("image", "added", "together"),
        strict=True,
    ):
        for place, image in zip(axes, rows_of, strict=True):
            place.imshow(image[..., 0], vmin=low, vmax=high, cmap=colours)
            place.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name)
    for place, label, predicted in zip(grid[2], evaluation.labels, evaluation.predicted, strict=True):
        place.set_xlabel(f"{label} → {predicted}", color=_BLUE if label == predicted else _RED)
    return figure
