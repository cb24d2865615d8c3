"""Correct programs: models of data, and models that learn by comparing."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.silent_bugs._parts import apply, clusters, dense, mlp, only, run_mlp
from lapwing.bench.doctor import clean
from lapwing.task import Task


def _points(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    return {"x": clusters(key)["x"]}


def _pair(
    sizes: tuple[int, ...], others: tuple[int, ...], names: tuple[str, str] = ("encode", "decode")
) -> Any:
    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {names[0]: mlp(k1, *sizes), names[1]: mlp(k2, *others)}

    return init


@clean
def variational_autoencoder() -> Task:
    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        mean, log_scale = jnp.split(run_mlp(params["encode"], batch["x"]), 2, axis=-1)
        latent = mean + jnp.exp(log_scale) * jax.random.normal(key, mean.shape)
        error = jnp.sum((run_mlp(params["decode"], latent) - batch["x"]) ** 2, axis=-1)
        divergence = 0.5 * jnp.sum(jnp.exp(2 * log_scale) + mean**2 - 1 - 2 * log_scale, axis=-1)
        return jnp.mean(error + divergence), {"divergence": jnp.mean(divergence)}

    return Task(init=_pair((6, 16, 8), (4, 16, 6)), data=_points, loss=loss)


@clean
def vector_quantization() -> Task:
    """A straight-through estimator, and two losses with a stop_gradient each."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        codes = jax.random.normal(k2, (8, 3))
        return _pair((6, 16, 3), (3, 16, 6))(k1) | {"codes": codes}

    def loss(params: Any, batch: Any) -> Any:
        z = run_mlp(params["encode"], batch["x"])
        nearest = jnp.argmin(jnp.sum((z[:, None] - params["codes"]) ** 2, -1), -1)
        code = params["codes"][nearest]
        through = z + jax.lax.stop_gradient(code - z)
        error = jnp.mean((run_mlp(params["decode"], through) - batch["x"]) ** 2)
        book = jnp.mean((jax.lax.stop_gradient(z) - code) ** 2)
        commitment = jnp.mean((z - jax.lax.stop_gradient(code)) ** 2)
        return error + book + 0.25 * commitment, {}

    return Task(init=init, data=_points, loss=loss)


@clean(held_out=True)
def diffusion() -> Task:
    """Predicts the noise at a random time."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        t = jax.random.uniform(k1, (len(batch["x"]), 1))
        noise = jax.random.normal(k2, batch["x"].shape)
        x = jnp.cos(t * jnp.pi / 2) * batch["x"] + jnp.sin(t * jnp.pi / 2) * noise
        return jnp.mean((run_mlp(params, jnp.concatenate([x, t], 1)) - noise) ** 2), {}

    return Task(init=lambda key: mlp(key, 7, 32, 6), data=_points, loss=loss)


@clean
def normalizing_flow() -> Task:
    """Two affine couplings."""

    def half(params: Any, kept: jax.Array, moved: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_scale, shift = jnp.split(run_mlp(params, kept), 2, axis=-1)
        return moved * jnp.exp(jnp.tanh(log_scale)) + shift, jnp.sum(jnp.tanh(log_scale), -1)

    def loss(params: Any, batch: Any) -> Any:
        a, b = batch["x"][:, :3], batch["x"][:, 3:]
        b, first = half(params["one"], a, b)
        a, second = half(params["two"], b, a)
        z = jnp.concatenate([a, b], axis=-1)
        log_likelihood = -0.5 * jnp.sum(z**2 + jnp.log(2 * jnp.pi), -1) + first + second
        return -jnp.mean(log_likelihood), {}

    return Task(init=_pair((3, 16, 6), (3, 16, 6), ("one", "two")), data=_points, loss=loss)


@clean(held_out=True)
def adversarial_pair() -> Task:
    """Generator and discriminator in one loss: each is trained on its own part."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        stop = jax.lax.stop_gradient
        made = run_mlp(params["generator"], jax.random.normal(key, (len(batch["x"]), 3)))
        real = run_mlp(params["critic"], batch["x"])
        fake = run_mlp(params["critic"], stop(made))
        critic = jnp.mean(jax.nn.softplus(-real)) + jnp.mean(jax.nn.softplus(fake))
        generator = jnp.mean(jax.nn.softplus(-run_mlp(stop(params["critic"]), made)))
        return critic + generator, {"critic": critic}

    return Task(init=_pair((3, 16, 6), (6, 16, 1), ("generator", "critic")), data=_points, loss=loss)


@clean
def contrastive_pairs() -> Task:
    """Two noisy views of each point; every example is compared with all others."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key)
        views = [batch["x"] + 0.2 * jax.random.normal(k, batch["x"].shape) for k in keys]
        a, b = (run_mlp(params, view) for view in views)
        a, b = (each / jnp.sqrt(jnp.sum(each**2, -1, keepdims=True) + 1e-6) for each in (a, b))
        scores = jax.nn.log_softmax(a @ b.T / 0.2)
        return -jnp.mean(jnp.diagonal(scores)), {}

    return Task(init=lambda key: mlp(key, 6, 16, 8), data=_points, loss=loss)


@clean(held_out=True)
def teacher_of_moving_averages() -> Task:
    """Self-distillation without labels: the target is a frozen copy behind a stop_gradient."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        student = mlp(k1, 6, 16, 8)
        return {"student": student, "head": dense(k2, 8, 8), "teacher": jax.tree.map(jnp.array, student)}

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        noisy = batch["x"] + 0.1 * jax.random.normal(key, batch["x"].shape)
        guess = apply(params["head"], run_mlp(params["student"], noisy))
        goal = jax.lax.stop_gradient(run_mlp(params["teacher"], batch["x"]))
        return jnp.mean((guess - goal) ** 2), {}

    return Task(init=init, data=_points, loss=loss, trainable=lambda params: only(params, "student", "head"))


@clean
def mixture_density() -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.uniform(k1, (64, 1), minval=-2, maxval=2)
        side = jnp.sign(jax.random.uniform(k2, (64,)) - 0.5)
        return {"x": x, "y": side * jnp.sin(x[:, 0]) + 0.1 * jax.random.normal(k3, (64,))}

    def loss(params: Any, batch: Any) -> Any:
        weight, mean, log_scale = jnp.split(run_mlp(params, batch["x"]), 3, axis=-1)
        score = -0.5 * ((batch["y"][:, None] - mean) * jnp.exp(-log_scale)) ** 2 - log_scale
        return -jnp.mean(jax.nn.logsumexp(jax.nn.log_softmax(weight) + score, axis=-1)), {}

    return Task(init=lambda key: mlp(key, 1, 16, 6), data=data, loss=loss)
