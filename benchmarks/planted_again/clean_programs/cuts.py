"""Gradients that are cut, turned or taken twice, as they should be."""

from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import blobs, config, forward, layers, nll


@clean
def codes_with_a_straight_through_gradient() -> Any:
    """Vector quantisation: gradient goes around the choice of a code, and each of two terms moves one side."""
    stop = jax.lax.stop_gradient
    centers = 2 * jax.random.normal(jax.random.key(9), (6, 5))

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        codes = jax.random.normal(k3, (6, 2))
        return {"encode": layers(k1, 5, 24, 2), "decode": layers(k2, 2, 24, 5), "codes": codes}

    def loss(params: Any, x: jax.Array) -> Any:
        z = forward(params["encode"], x)
        code = params["codes"][jnp.argmin(jnp.sum((z[:, None] - params["codes"]) ** 2, -1), 1)]
        error = jnp.mean((forward(params["decode"], z + stop(code - z)) - x) ** 2)
        return error + jnp.mean((stop(z) - code) ** 2) + 0.25 * jnp.mean((z - stop(code)) ** 2), {
            "error": error
        }

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return centers[jax.random.randint(k1, (48,), 0, 6)] + 0.2 * jax.random.normal(k2, (48, 5))

    return Task(init, data, loss), config(400)


@jax.custom_vjp
def turned(x: jax.Array) -> jax.Array:
    """The identity, whose gradient is turned round."""
    return x


turned.defvjp(lambda x: (x, None), lambda _, g: (-0.3 * g,))


@clean
def domains_that_should_look_alike() -> Any:
    """Gradient reversal: a classifier of domains learns, and the features learn to deceive it."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"features": layers(k1, 6, 24, 8), "label": layers(k2, 8, 3), "domain": layers(k3, 8, 16, 2)}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        batch, domain = blobs(k1, 48, 6), jax.random.bernoulli(k2, 0.5, (48,)).astype(int)
        return {"x": batch["x"].at[:, 0].add(2.0 * domain), "label": batch["label"], "domain": domain}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params["label"], jax.nn.relu(forward(params["features"], batch["x"])))

    def loss(params: Any, batch: Any) -> Any:
        h = jax.nn.relu(forward(params["features"], batch["x"]))
        domain = nll(forward(params["domain"], turned(h)), batch["domain"])
        return nll(forward(params["label"], h), batch["label"]) + domain, {"domain": domain}

    task = Task(
        init,
        data,
        loss,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
        expected_findings={"gradients": "the gradient of the domain is turned round before the features"},
    )
    return task, config(400)


@clean
def pictures_and_captions() -> Any:
    """A contrastive loss of pairs: each example is compared with all others of its batch, with a learned
    temperature."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        towers = {"picture": layers(k1, 12, 32, 8), "caption": layers(k2, 6, 32, 8)}
        return {**towers, "log_scale": jnp.full((1,), 1.0)}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        meaning = jax.random.normal(k1, (32, 6))
        mixing = jax.random.normal(jax.random.key(1), (6, 12))
        return {
            "picture": jnp.tanh(meaning @ mixing),
            "caption": meaning + 0.2 * jax.random.normal(k2, (32, 6)),
        }

    def embed(params: Any, batch: Any) -> Any:
        z = {name: forward(params[name], batch[name]) for name in ("picture", "caption")}
        return {name: v / jnp.sqrt(jnp.sum(v**2, 1, keepdims=True) + 1e-6) for name, v in z.items()}

    def loss(params: Any, batch: Any) -> Any:
        z = embed(params, batch)
        logits = jnp.exp(params["log_scale"]) * z["picture"] @ z["caption"].T
        pairs = jnp.arange(32)
        return (nll(logits, pairs) + nll(logits.T, pairs)) / 2, {"right": jnp.mean(logits.argmax(1) == pairs)}

    return Task(init, data, loss, predict=embed), config(400)


@clean
def learning_to_learn_a_sine() -> Any:
    """Meta-learning: the loss is that after two steps of gradient descent, whose gradient is differentiated again."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        height = jax.random.uniform(k1, (12, 1, 1), minval=0.5, maxval=2)
        phase = jax.random.uniform(k2, (12, 1, 1), maxval=3)
        x = jax.random.uniform(k3, (12, 20, 1), minval=-3, maxval=3)
        y = height * jnp.sin(x + phase)
        return {"support": (x[:, :10], y[:, :10]), "query": (x[:, 10:], y[:, 10:])}

    def error(params: Any, pairs: Any) -> jax.Array:
        return jnp.mean((forward(params, pairs[0]) - pairs[1]) ** 2)

    def adapted(params: Any, support: Any) -> Any:
        for _ in range(2):
            grads = jax.grad(error)(params, support)
            params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
        return params

    def loss(params: Any, batch: Any) -> Any:
        each = jax.vmap(lambda support, query: error(adapted(params, support), query))
        return jnp.mean(each(batch["support"], batch["query"])), {}

    return Task(lambda key: layers(key, 1, 32, 32, 1), data, loss), config(300)
