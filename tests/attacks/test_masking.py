"""The checklist is quiet about an honest classifier, and says so about one that hides its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import MASKING_POINTS, AttackError, AutoAttack, masking_checks
from lapwing.attacks._masking import _flat_loss, _noise, _square_after_gradients, _Subject

WEIGHTS = [0.3 * jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate([(36, 32), (32, 10)])]
IMAGES = jax.random.uniform(jax.random.key(1), (40, 6, 6, 1))
SETTINGS = AutoAttack(eps=0.05, steps=20, queries=200)
KEY = jax.random.key(2)


def honest(images):
    return jnp.tanh((images - 0.5).reshape(len(images), -1) @ WEIGHTS[0]) @ WEIGHTS[1]


def rounded(images):
    """No gradient at all: an attack that follows it stays where it is."""
    return honest(jnp.round(images * 8) / 8)


def saturated(images):
    """Scores so large that the probability of the label rounds to 1, and the cross-entropy to 0."""
    return 1e5 * honest(images)


LABELS = {f: np.asarray(jnp.argmax(f(IMAGES), axis=1)) for f in (honest, rounded, saturated)}


def flagged(predict) -> dict[str, bool]:
    checks = list(masking_checks(predict, IMAGES, LABELS[predict], SETTINGS, KEY))
    assert len(checks) == MASKING_POINTS
    for check in checks:
        assert check.sentence.endswith(".")
        assert "\n" not in check.sentence
        assert str(check).startswith("MASKED?" if check.flagged else "ok")
    return {check.name: check.flagged for check in checks}


def test_a_flat_loss_is_seen():
    for predict, expected in ((honest, 0.0), (rounded, 1.0), (saturated, 1.0)):
        subject = _Subject(predict, np.asarray(IMAGES), LABELS[predict], SETTINGS, KEY)
        check = _flat_loss(subject, None)
        assert check.flagged == bool(expected)
        assert abs(check.numbers["flat"] - expected) < 0.3


@pytest.mark.slow
def test_the_checklist_is_quiet_about_an_honest_classifier():
    assert not any(flagged(honest).values())


@pytest.mark.slow
def test_a_classifier_of_rounded_images_is_masked():
    found = flagged(rounded)
    assert found["black_box"]
    assert found["flat_loss"]
    assert found["large_eps"]


@pytest.mark.slow
def test_saturated_scores_are_masked():
    assert flagged(saturated)["flat_loss"]


@pytest.mark.slow
def test_noise_that_is_as_strong_as_the_gradient_is_seen():
    """Beside every image there is another class, which the gradient does not show."""
    labels = LABELS[honest]

    def holes(images):
        scores = honest(images)
        near = jnp.sin(1e3 * jnp.sum(jax.lax.stop_gradient(images), axis=(1, 2, 3)))
        return jax.lax.stop_gradient(jnp.where((near > 0.5)[:, None], -scores, scores))

    right = np.asarray(jnp.argmax(holes(IMAGES), axis=1)) == labels
    subject = _Subject(holes, np.asarray(IMAGES)[right], labels[right], SETTINGS, KEY)
    check = _noise(subject, None)
    assert check.flagged
    assert not _noise(
        _Subject(honest, np.asarray(IMAGES), labels, SETTINGS, KEY),
        None,
    ).flagged


class _Fell:
    names = ("apgd-ce", "apgd-t", "fab-t", "square")

    def __init__(self, *fell_to: int):
        self.fell_to = np.array(fell_to)


def test_what_square_finds_after_the_others_is_counted():
    subject = _Subject(honest, np.asarray(IMAGES), LABELS[honest], SETTINGS, KEY)
    little = _square_after_gradients(subject, _Fell(*[-1] * 30, 3, 0, 0, 1, -2))
    assert not little.flagged
    assert "makes 1 of the 31 images fall" in little.sentence
    much = _square_after_gradients(subject, _Fell(*[-1] * 20, *[3] * 8, 0, 0))
    assert much.flagged
    assert much.numbers["share"] == pytest.approx(8 / 30)


def test_without_a_right_image_there_is_nothing_to_examine():
    wrong = (LABELS[honest] + 1) % 10
    few = AutoAttack(eps=0.08, steps=1, attacks=("apgd-ce",))
    with pytest.raises(AttackError, match="no image is right before any attack"):
        list(masking_checks(honest, IMAGES, wrong, few, KEY))
