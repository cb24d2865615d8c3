"""Every objective against its published formula, written with probabilities: values, gradients, vmap and jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import Attack, AttackError, CrossEntropy, Mail, Margin, Mart, Trades, objective_of
from lapwing.attacks._objectives import OBJECTIVES
from tests.slow import some

LABELS = jnp.array([0, 2, 1, 3, 3])


def of_labels(p, labels):
    return p[jnp.arange(len(labels)), labels]


def best_other(p, labels):
    return jnp.max(p.at[jnp.arange(len(labels)), labels].set(-jnp.inf), axis=1)


def kl(p, q):
    return jnp.sum(p * (jnp.log(p) - jnp.log(q)), axis=1)


def plain_cross_entropy(attacked, natural, labels):
    return -jnp.log(of_labels(jax.nn.softmax(attacked), labels))


def plain_trades(attacked, natural, labels, beta=6.0):
    p, q = jax.nn.softmax(natural), jax.nn.softmax(attacked)
    return -jnp.log(of_labels(p, labels)) + beta * kl(p, q)


def plain_mart(attacked, natural, labels, beta=5.0):
    p, q = jax.nn.softmax(natural), jax.nn.softmax(attacked)
    boosted = -jnp.log(of_labels(q, labels)) - jnp.log(1 - best_other(q, labels))
    return boosted + beta * kl(p, q) * (1 - of_labels(p, labels))


def plain_margin(attacked, natural, labels, least=1.0):
    return jnp.maximum(0.0, least + best_other(attacked, labels) - of_labels(attacked, labels))


def plain_mail(attacked, natural, labels, slope=10.0, bias=-0.5):
    q = jax.lax.stop_gradient(jax.nn.softmax(attacked))
    weights = 1 / (1 + jnp.exp(slope * (of_labels(q, labels) - best_other(q, labels) - bias)))
    return weights / jnp.mean(weights) * plain_cross_entropy(attacked, natural, labels)


CASES = {
    "cross_entropy": (CrossEntropy(), plain_cross_entropy),
    "trades": (Trades(), plain_trades),
    "trades, beta 2": (Trades(2.0), lambda *at: plain_trades(*at, beta=2.0)),
    "mart": (Mart(), plain_mart),
    "mart, beta 1": (Mart(1.0), lambda *at: plain_mart(*at, beta=1.0)),
    "margin": (Margin(), plain_margin),
    "margin 3": (Margin(3.0), lambda *at: plain_margin(*at, least=3.0)),
    "mail": (Mail(), plain_mail),
    "mail, flat": (Mail(2.0, 0.1), lambda *at: plain_mail(*at, slope=2.0, bias=0.1)),
}
CASE = pytest.mark.parametrize("name", CASES)


def scores(seed: int, size: float = 1.5):
    keys = jax.random.split(jax.random.key(seed))
    return tuple(size * jax.random.normal(key, (5, 4)) for key in keys)


@pytest.mark.parametrize("name", some(CASES, 0, 2, 4, 6, 8))
def test_values_and_gradients_are_those_of_the_published_formula(name: str):
    objective, plain = CASES[name]
    for seed in range(3):
        at = scores(seed)
        np.testing.assert_allclose(objective(*at, LABELS), plain(*at, LABELS), rtol=2e-5, atol=2e-6)
        ours, theirs = (
            jax.grad(lambda attacked, natural, loss=loss: jnp.sum(loss(attacked, natural, LABELS)), (0, 1))(
                *at
            )
            for loss in (objective, plain)
        )
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        uses_natural = float(jnp.abs(ours[1]).max()) > 0
        assert uses_natural == objective.natural


@pytest.mark.parametrize("name", some(CASES, 1, 7))
def test_batches_of_batches_and_compiled_ones_are_the_same(name: str):
    objective, _ = CASES[name]
    many = [jnp.stack(part) for part in zip(*(scores(seed) for seed in range(3)), strict=True)]
    expected = jnp.stack([objective(*scores(seed), LABELS) for seed in range(3)])
    found = jax.jit(jax.vmap(objective, (0, 0, None)))(*many, LABELS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@CASE
def test_a_network_that_is_sure_and_wrong_still_gets_a_gradient(name: str):
    """Probabilities round to 0 and 1 there, and the plain formulas give inf or nan."""
    objective, _ = CASES[name]
    attacked, natural = (1e3 * jnp.eye(4)[jnp.array(rows)] for rows in ([1, 1, 0, 0, 0], LABELS))
    slope = jax.grad(lambda at: jnp.sum(objective(at, natural, LABELS)))(attacked)
    assert np.isfinite(slope).all()
    assert (slope[jnp.arange(5), LABELS] < 0).all()


def test_short_forms_are_the_objects():
    kinds = {type(objective) for objective, _ in CASES.values()}
    assert {type(objective_of(name)) for name in OBJECTIVES} == kinds
    assert objective_of("trades", beta=3.0) == Trades(3.0)
    assert objective_of(Mart(2.0), beta=9.0) == Mart(2.0)
    with pytest.raises(AttackError, match=r"robust term of trades and mart; margin has none"):
        objective_of("margin", beta=1.0)
    with pytest.raises(AttackError, match=r"objectives are cross_entropy, trades, .* not 'trade'"):
        objective_of("trade")


def test_the_attack_of_trades_maximizes_the_divergence_whatever_the_labels_are():
    weights = jax.random.normal(jax.random.key(0), (6, 4))

    def predict(images):
        return jnp.tanh(images @ weights)

    images = jax.random.uniform(jax.random.key(1), (5, 6))
    attack, key, natural = Attack(eps=0.2, steps=5), jax.random.key(2), predict(images)
    ascent = Trades().ascent(natural, LABELS)
    found = attack(predict, images, LABELS, key, loss=ascent)
    other = attack(predict, images, (LABELS + 1) % 4, key, loss=ascent)
    np.testing.assert_array_equal(found.images, other.images)
    np.testing.assert_allclose(
        found.loss, kl(jax.nn.softmax(natural), jax.nn.softmax(predict(found.images))), rtol=1e-4
    )
    assert float(jnp.sum(found.loss)) > float(
        jnp.sum(ascent(predict(attack(predict, images, LABELS, key).images)))
    )
