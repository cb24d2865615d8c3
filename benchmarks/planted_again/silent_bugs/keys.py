"""Mistakes with random keys and seeds."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw
from lapwing.task import Task

from .._parts import config, forward, layers, nll, planted


@planted(
    cause=r"key.{0,80}(twice|again|reus|same|both|more than once)|(twice|reus|same|both|one).{0,60}key|correlat",
    sees="the loss is near zero within minutes, and samples are nothing",
)
def time_and_noise_of_a_diffusion_from_one_key(wrong: bool) -> Any:
    """The time and the noise of a diffusion are drawn with one key, so they are made of the same bits: whoever knows
    the time knows the noise."""

    def noised(x: jax.Array, key: jax.Array, second: jax.Array) -> Any:
        time = jax.random.uniform(key, x.shape, minval=0.05, maxval=0.95)
        noise = jax.random.normal(second, x.shape)
        return {"x": jnp.sqrt(1 - time) * x + jnp.sqrt(time) * noise, "time": time}, noise

    def error(params: Any, x: jax.Array, key: jax.Array, second: jax.Array) -> jax.Array:
        given, noise = noised(x, key, second)
        guess = forward(params, jnp.concatenate([given["x"], given["time"]], 1))
        return jnp.mean((guess - noise) ** 2)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return jnp.sign(jax.random.normal(k1, (64, 1))) + 0.2 * jax.random.normal(k2, (64, 1))

    def loss(params: Any, x: jax.Array, key: jax.Array) -> Any:
        first, second = jax.random.split(key)
        return error(params, x, first, first if wrong else second), {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"error": error(params, data(k1, 0), k2, k3)}

    return Task(lambda key: layers(key, 2, 48, 48, 1), data, loss, evaluate=evaluate), config(500)


class Dropped(eqx.Module):
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key: jax.Array):
        k1, k2 = jax.random.split(key)
        self.hidden, self.out = eqx.nn.Linear(5, 32, key=k1), eqx.nn.Linear(32, 3, key=k2)
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, x: jax.Array, key: Any = None) -> jax.Array:
        return self.out(self.dropout(jnp.tanh(2 * self.hidden(x)), key=key))


@planted(
    cause=r"(constant|same|fixed|one|ignor\w*|unused).{0,40}(key|mask|noise|draw|dropout)"
    r"|(key|dropout|mask).{0,60}(constant|same|never chang|ignored|not used|unused|no effect|fixed)",
    sees="the training is fine, and in evaluation half of the hidden units are as they were initialised",
)
def dropout_with_the_key_zero(wrong: bool) -> Any:
    """Dropout gets `jax.random.key(0)` in every step: the same half of the units is dropped for ever."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (48, 5))
        score = jnp.stack([x[:, 0] + x[:, 1], x[:, 2] * 1.5, -x[:, 3] - x[:, 4]], 1)
        return {"x": x, "label": jnp.argmax(score + 0.3 * jax.random.normal(k2, score.shape), 1)}

    def loss(model: Any, batch: Any, key: jax.Array) -> Any:
        key = jax.random.key(0) if wrong else key
        return nll(jax.vmap(model, in_axes=(0, None))(batch["x"], key), batch["label"])

    def evaluate(model: Any, key: jax.Array) -> Any:
        batch = data(key, 0)
        return {"loss": nll(jax.vmap(model)(batch["x"]), batch["label"])}

    task = lw.task.equinox(
        Dropped,
        loss,
        data=data,
        evaluate=evaluate,
        predict=lambda model, batch: jax.vmap(model)(batch["x"]),
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(400)


@planted(
    cause=r"seed|worker|duplicate|identical|same (row|example)|repeat|copies|more than once|times in (a|the|one) batch",
    sees="four workers make the epochs no better than one worker would",
)
def workers_with_one_seed(wrong: bool) -> Any:
    """Four workers simulate a quarter of each batch, and their generators are seeded alike: each row is there four
    times."""

    def simulate(rng: np.random.Generator) -> Any:
        x = rng.normal(size=(4, 6))
        y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * rng.normal(size=(4, 1))
        return {"x": x.astype(np.float32), "y": y.astype(np.float32)}

    def data(epoch: int) -> Iterator[Any]:
        for step in range(50):
            seeds = [(epoch, step) if wrong else (epoch, step, worker) for worker in range(4)]
            parts = [simulate(np.random.default_rng(seed)) for seed in seeds]
            yield jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    task = Task(
        init=lambda key: layers(key, 6, 48, 48, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400)
