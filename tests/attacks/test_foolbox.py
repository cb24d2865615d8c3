"""Beside another library: at the same number of steps, at least as many examples are fooled."""

import warnings

import jax
import jax.numpy as jnp
import pytest

from lapwing.attacks import apgd, fab_targeted, pgd

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


def _problem() -> tuple[jax.Array, jax.Array]:
    images = jax.random.uniform(jax.random.key(2), (100, 8, 8, 1))
    return images, jnp.argmax(scores(images), axis=1)


def _fooled(attack, images: jax.Array, labels: jax.Array, eps: float) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = foolbox.JAXModel(scores, bounds=(0, 1))
        _, _, fooled = attack(model, images, foolbox.criteria.Misclassification(labels), epsilons=eps)
    assert 0.1 < float(fooled.mean()) < 0.9, "the comparison says nothing"
    return float(fooled.mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "theirs", "eps"), [("linf", "LinfPGD", 0.02), ("l2", "L2PGD", 0.12), ("l1", "L1PGD", 0.8)]
)
def test_apgd_fools_at_least_as_many_as_their_pgd_with_the_same_steps(norm, theirs: str, eps: float):
    images, labels = _problem()
    fooled = _fooled(getattr(foolbox.attacks, theirs)(steps=10), images, labels, eps)
    ours = jax.jit(lambda key: apgd(scores, images, labels, key, norm=norm, eps=eps, steps=10).fooled)
    assert float(ours(jax.random.key(3)).mean()) >= fooled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "theirs", "eps"), [("linf", "LinfDeepFoolAttack", 0.02), ("l2", "L2DeepFoolAttack", 0.12)]
)
def test_fab_finds_points_at_least_as_near_as_deepfool(norm, theirs: str, eps: float):
    """Both follow tangent planes to the nearest misclassified point; theirs has no step seen from the image."""
    images, labels = _problem()
    fooled = _fooled(getattr(foolbox.attacks, theirs)(steps=30), images, labels, eps)
    ours = jax.jit(
        lambda key: fab_targeted(scores, images, labels, key, norm=norm, eps=eps, targets=4, steps=30).fooled
    )
    assert float(ours(jax.random.key(3)).mean()) >= fooled
