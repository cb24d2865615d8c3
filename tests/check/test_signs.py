"""Divergences and likelihoods with the wrong sign, in several disguises, and their clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lapwing.check import CheckError, numbers

KEY = jax.random.key(0)
PARAMS = {"encode": jax.random.normal(KEY, (6, 4)), "decode": jax.random.normal(KEY, (2, 6))}
BATCH = {"x": jax.random.normal(KEY, (8, 6)), "count": jnp.arange(8) % 3, "weight": jnp.linspace(0.1, 1, 8)}


def parts(p: Any, b: Any, width: Any = jnp.exp) -> Any:
    mean, raw = jnp.split(b["x"] @ p["encode"], 2, -1)
    spread = width(0.5 * raw)
    z = mean + spread * jax.random.normal(KEY, mean.shape)
    return jnp.mean((z @ p["decode"] - b["x"]) ** 2), mean, raw, spread


def log_variance(sign: int) -> Any:
    def loss(p: Any, b: Any) -> jax.Array:
        error, mean, u, _ = parts(p, b)
        kl = -0.5 * jnp.sum(1 + u - mean**2 - jnp.exp(u), -1)
        return error + sign * 0.1 * jnp.mean(b["weight"] * kl)

    return loss


def softplus(sign: int) -> Any:
    def loss(p: Any, b: Any) -> jax.Array:
        error, mean, _, s = parts(p, b, jax.nn.softplus)
        kl = 0.5 * (s**2 + mean**2) - 0.5 - jnp.log(s)
        return error + sign * jnp.sum(kl) / 8

    return loss


def log_sigma(sign: int) -> Any:
    def one(p: Any, x: Any) -> jax.Array:
        mean, u = jnp.split(x @ p["encode"], 2, -1)
        return jnp.sum((mean**2 + jnp.exp(2 * u) - 2 * u - 1) / 2)

    def loss(p: Any, b: Any) -> jax.Array:
        kl = jax.vmap(one, (None, 0))(p, b["x"])
        return parts(p, b)[0] + jnp.where(sign > 0, 1.0, -1.0) * kl.mean()

    return loss


def variance(sign: int) -> Any:
    def loss(p: Any, b: Any) -> jax.Array:
        error, mean, _, var = parts(p, b, jax.nn.softplus)
        return error - sign * 0.5 * jnp.mean(jnp.sum(jnp.log(var) - var - mean**2, -1))

    return loss


def poisson(sign: int) -> Any:
    def loss(p: Any, b: Any) -> jax.Array:
        u = (b["x"] @ p["encode"])[:, 0]
        return -sign * jnp.mean(b["count"] * u - jnp.exp(u)) + jnp.mean(p["decode"] ** 2)

    return loss


@pytest.mark.parametrize("made", [log_variance, softplus, log_sigma, variance, poisson])
def test_a_term_with_the_wrong_sign_is_found(made: Any):
    numbers(made(1), PARAMS, BATCH)
    with pytest.raises(CheckError, match=r"of the same values \(test_signs.py:\d+\): it has no lower bound"):
        numbers(made(-1), PARAMS, BATCH)


def normal(p: Any, b: Any) -> jax.Array:
    """A density that is narrow has a negative loss, which is right."""
    _, mean, u, _ = parts(p, b)
    return jnp.mean(0.5 * u + 0.5 * (b["x"][:, :2] - mean) ** 2 * jnp.exp(-u))


def flow(p: Any, b: Any) -> jax.Array:
    _, shift, u, _ = parts(p, b)
    z = b["x"][:, :2] * jnp.exp(u) + shift
    return jnp.mean(jnp.sum(0.5 * z**2 - u, -1))


def kernels(p: Any, b: Any) -> jax.Array:
    """Of two samples: a similarity exp(−d²) is made large."""
    z = b["x"] @ p["encode"]
    far = jnp.sum((z[:, None] - z[None]) ** 2, -1)
    return jnp.mean(jnp.exp(-far[:4, :4])) - 2 * jnp.mean(jnp.exp(-far[:4, 4:])) + jnp.mean(far)


def contrastive(p: Any, b: Any) -> jax.Array:
    z = b["x"] @ p["encode"]
    return jnp.mean(jax.nn.logsumexp(z @ z.T, -1) - jnp.sum(z * z, -1))


@pytest.mark.parametrize("loss", [normal, flow, kernels, contrastive])
def test_losses_that_may_be_negative_pass(loss: Any):
    numbers(loss, PARAMS, BATCH)
