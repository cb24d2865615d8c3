"""Every norm does what attacks ask of it: those of Lapwing, and one that a user wrote."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import L1, L2, Attack, Linf, Norm, cross_entropy
from tests.slow import some

KEY = jax.random.key(7)
SHAPE = (3, 2)
DELTAS = 2 * np.random.default_rng(0).normal(size=(20, *SHAPE)).astype(np.float32)


@dataclass(frozen=True)
class OwnL1:
    """The sum of absolute values, as a user would add it: steps go along the largest entry of the gradient."""

    def length(self, deltas):
        return jnp.sum(jnp.abs(deltas.reshape(len(deltas), -1)), axis=1)

    def project(self, deltas, eps):
        flat = jnp.abs(deltas.reshape(len(deltas), -1))
        falling = -jnp.sort(-flat, axis=1)
        excess = (jnp.cumsum(falling, axis=1) - eps) / jnp.arange(1, flat.shape[1] + 1)
        threshold = jnp.maximum(jnp.max(excess, axis=1), 0.0)
        return jnp.sign(deltas) * jnp.maximum(flat - threshold[:, None], 0.0).reshape(deltas.shape)

    def steepest(self, gradient):
        flat = gradient.reshape(len(gradient), -1)
        chosen = jax.nn.one_hot(jnp.argmax(jnp.abs(flat), axis=1), flat.shape[1])
        return (chosen * jnp.sign(flat)).reshape(gradient.shape)

    def sample(self, key, shape):
        size = int(np.prod(shape))
        sign_key, point_key = jax.random.split(key)
        spacings = jax.random.exponential(point_key, (size + 1,))
        point = spacings[:size] / jnp.sum(spacings)
        return (point * jax.random.rademacher(sign_key, (size,), point.dtype)).reshape(shape)


NORMS = [Linf(), L2(), L1(), OwnL1()]


@pytest.fixture(params=NORMS, ids=str)
def norm(request: pytest.FixtureRequest) -> Norm:
    return request.param


def test_projections_are_in_the_ball_and_leave_its_points_alone(norm: Norm):
    for eps in (0.0, 0.5, 3.0):
        inside = norm.project(DELTAS, jnp.float32(eps))
        assert (norm.length(inside) <= eps + 1e-5).all()
        np.testing.assert_allclose(norm.project(inside, jnp.float32(eps)), inside, atol=1e-5)
    np.testing.assert_array_equal(norm.project(DELTAS, jnp.float32(100.0)), DELTAS)


def test_the_l1_projection_is_that_by_sorting():
    for eps in (0.1, 1.0, 4.0):
        np.testing.assert_allclose(
            L1().project(DELTAS, jnp.float32(eps)), OwnL1().project(DELTAS, jnp.float32(eps)), atol=1e-5
        )


@pytest.mark.parametrize("norm", some(NORMS, 1, 3), ids=str)
def test_a_projection_is_the_nearest_point_of_the_ball(norm: Norm):
    eps = jnp.float32(1.0)
    nearest = jnp.sum((norm.project(DELTAS, eps) - DELTAS) ** 2, axis=(1, 2))
    for key in jax.random.split(KEY, 20):
        other = jax.vmap(lambda key: norm.sample(key, SHAPE))(jax.random.split(key, len(DELTAS)))
        assert (jnp.sum((other - DELTAS) ** 2, axis=(1, 2)) >= nearest - 1e-5).all()


@pytest.mark.parametrize("norm", some(NORMS, 2, 3), ids=str)
def test_no_direction_of_the_unit_ball_is_steeper(norm: Norm):
    direction = norm.steepest(DELTAS)
    np.testing.assert_allclose(norm.length(direction), 1.0, rtol=1e-5)
    rise = jnp.sum(direction * DELTAS, axis=(1, 2))
    points = jax.vmap(lambda key: norm.sample(key, SHAPE))(jax.random.split(KEY, 500))
    assert (jnp.einsum("phw,ehw->pe", points, DELTAS) <= rise + 1e-4).all()


def test_tiny_gradients_have_a_direction_and_zero_has_none(norm: Norm):
    step = norm.steepest(jnp.array([[1e-30, -2e-30], [0.0, 0.0]]))
    np.testing.assert_allclose(norm.length(step), [1.0, 0.0], rtol=1e-5)


@pytest.mark.parametrize("norm", some(NORMS, 0, 2), ids=str)
def test_samples_fill_the_unit_ball_evenly(norm: Norm):
    points = jax.vmap(lambda key: norm.sample(key, (2,)))(jax.random.split(KEY, 4000))
    lengths = norm.length(points)
    assert (lengths <= 1 + 1e-6).all()
    assert abs(float(jnp.mean(lengths < 0.5)) - 0.25) < 0.03


@pytest.mark.parametrize("norm", some(NORMS, 0, 3), ids=str)
def test_an_attack_climbs_inside_the_ball(norm: Norm):
    weights = jax.random.normal(KEY, (6, 3))

    def scores(images):
        return jnp.tanh(images.reshape(len(images), -1) - 0.5) @ weights

    images, labels = jax.random.uniform(KEY, (8, *SHAPE)), jnp.arange(8) % 3
    attack = Attack(eps=0.3, norm=norm, steps=5, keep_best=True, restarts=2)
    found = jax.jit(lambda key: attack(scores, images, labels, key))(KEY)
    assert (norm.length(found.deltas) <= 0.3 + 1e-5).all()
    assert ((found.images >= 0) & (found.images <= 1)).all()
    unmoved = jax.jit(lambda: cross_entropy(scores(images), labels))()
    assert (found.loss >= unmoved - 1e-6).all()
    assert (found.loss > unmoved).any()


@pytest.mark.parametrize(("name", "norm"), [("linf", Linf()), ("l2", L2()), ("l1", L1())])
def test_a_name_is_short_for_its_norm(name, norm: Norm):
    images, labels = jax.random.uniform(KEY, (4, *SHAPE)), jnp.arange(4) % 3

    def program(norm) -> str:
        attack = Attack(eps=0.2, norm=norm, steps=2)
        return str(jax.make_jaxpr(lambda key: attack(lambda x: x[:, :, 0], images, labels, key))(KEY))

    assert program(name) == program(norm)
