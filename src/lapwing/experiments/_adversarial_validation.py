"""The evaluations during an adversarial training: cheap attacks on validation images, to watch it and not to report."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from lapwing.attacks import fgsm
from lapwing.data import LabelledImages


def validation(config: Any, images: LabelledImages) -> Callable[[Any, Array], dict[str, Array]]:
    """Accuracies on validation images: natural, under one attack step, under many, and for fast the gap of the two."""
    count = min(config.validation, len(images.labels))
    pixels, labels = images.pixels(slice(count)), jnp.asarray(images.labels[:count])
    many = dataclasses.replace(
        config.attack,
        steps=config.validation_steps,
        step_size=0.0,
        restarts=2,
        random_start=True,
        early_exit=True,
        keep_best=True,
    )
    one = fgsm(config.attack.eps, norm=config.attack.norm)

    def evaluate(network: Any, key: Array) -> dict[str, Array]:
        natural = jnp.argmax(network(pixels), axis=1) == labels
        right = [natural & ~attack(network, pixels, labels, key).fooled for attack in (one, many)]
        single, robust = map(jnp.mean, right)
        found = {"natural": jnp.mean(natural), "robust": robust, "one_step": single}
        # The other methods are weak against many steps at first too, which is not overfitting.
        return {**found, "overfit": single - robust} if config.method == "fast" else found

    return evaluate
