"""The robustness of a trained network under PGD with many restarts: the numbers, a curve over eps, and pictures.

The attacks during training are as weak as time allows; a network can look robust under them and not be. This uses a
strong one, on test images that nothing else has used; AutoAttack is stronger still (`_adversarial_autoattack`).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from lapwing.attacks import Attack, Robustness, robustness
from lapwing.core import png_of

from ._adversarial_pictures import Attacked, curve_figure, image_figure

CURVE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # Multiples of the attack's eps.
_CURVE_RESTARTS = 2
_SHOWN = 8


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
    network: Any,
    images: Float[Array, "examples height width channels"],
    labels: Int[Array | np.ndarray, " examples"],
    attack: Attack,
    key: Key[Array, ""],
    *,
    curve: Sequence[float] = CURVE,
    batch_size: int = 1000,
) -> Evaluation:
    """Attacks all images. `curve` are further radii, as multiples of the attack's eps.

    >>> from lapwing.models import Cnn
    >>> network = Cnn.init(jax.random.key(0), (8, 8, 1), width=1)
    >>> images, labels = jnp.zeros((3, 8, 8, 1)), jnp.array([0, 1, 2])
    >>> evaluate(network, images, labels, Attack(0.1, steps=2), jax.random.key(0), curve=()).found.natural.count
    3
    """

    def scores(network: Any, images: Array) -> Array:
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
    curve = [(point.eps, point.robust) for point in evaluation.curve or (evaluation.found,)]
    shown = Attacked(
        "attacked", evaluation.images, evaluation.attacked, evaluation.labels, evaluation.predicted
    )
    found = evaluation.found
    return {
        "robustness.png": png_of(lambda: curve_figure(curve, found.eps, restarts=found.after), dpi=130),
        "attacked.png": png_of(lambda: image_figure([shown]), dpi=130),
    }
