"""Beside another library: at the same number of steps, at least as many examples are fooled."""

import warnings

import jax
import jax.numpy as jnp
import pytest

from lapwing.attacks import pgd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It imports names that SciPy would rather have imported from elsewhere.
    foolbox = pytest.importorskip("foolbox", reason="foolbox is not installed")


@jax.jit
def scores(images: jax.Array) -> jax.Array:
    first = jax.random.normal(jax.random.key(0), (64, 32)) / 8
    second = jax.random.normal(jax.random.key(1), (32, 5)) / 3
    return jnp.tanh(4 * (images.reshape(images.shape[0], -1) - 0.5) @ first) @ second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "theirs", "eps"),
    [pytest.param("linf", "LinfPGD", 0.02, marks=pytest.mark.slow), ("l2", "L2PGD", 0.12)],
)
def test_at_least_as_many_are_fooled(norm, theirs: str, eps: float):
    """From the image itself, so that neither has the luckier start: the last point of theirs is among the points that
    ours sees."""
    images = jax.random.uniform(jax.random.key(2), (100, 8, 8, 1))
    labels = jnp.argmax(scores(images), axis=1)
    attack = getattr(foolbox.attacks, theirs)(rel_stepsize=0.25, steps=10, random_start=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = foolbox.JAXModel(scores, bounds=(0, 1))
        _, _, fooled = attack(model, images, foolbox.criteria.Misclassification(labels), epsilons=eps)
    assert 0.2 < float(fooled.mean()) < 0.8, "the comparison says nothing"
    for options in ({"early_exit": True}, {"keep_best": True}, {"loss": "margin", "early_exit": True}):
        attack = pgd(eps, 10, norm=norm, random_start=False, **options)
        ours = jax.jit(lambda key, attack=attack: attack(scores, images, labels, key).fooled)(
            jax.random.key(3)
        )
        assert float(ours.mean()) >= float(fooled.mean())
