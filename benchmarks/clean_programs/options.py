"""Correct programs: what one does with optimizers, precision, data and evaluation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.silent_bugs._parts import CLASSES, apply, clusters, cross_entropy, dense, mlp, only, run_mlp
from lapwing.bench.doctor import clean
from lapwing.task import Arrays, Stream, Task
from lapwing.train import FitConfig, Schedule

from .supervised import classifier


def _network(**fields: Any) -> Task:
    return classifier(lambda p, b: run_mlp(p, b["x"]), lambda key: mlp(key, 6, 16, CLASSES), **fields)


def _points(count: int, seed: int) -> dict[str, np.ndarray]:
    return jax.tree.map(np.asarray, clusters(jax.random.key(seed), count))


@clean
def momentum_with_clipping() -> tuple[Task, FitConfig]:
    task = _network(optimizer=lambda learning_rate: optax.sgd(learning_rate, momentum=0.9, nesterov=True))
    return task, FitConfig(learning_rate=0.05, clip=1.0)


@clean
def warmup_and_cosine() -> tuple[Task, FitConfig]:
    schedule = Schedule(kind="cosine", warmup=50, floor=0.1)
    return _network(), FitConfig(steps=500, learning_rate=1e-2, schedule=schedule)


@clean(held_out=True)
def chain_with_a_schedule() -> tuple[Task, FitConfig]:
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 20, 400, 1e-4)
    return _network(optimizer=optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))), FitConfig(
        steps=400
    )


@clean
def decay_of_matrices() -> Task:
    """Weight decay on matrices, not on biases."""

    def matrices(params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    return _network(
        optimizer=lambda learning_rate: optax.adamw(learning_rate, weight_decay=1e-2, mask=matrices)
    )


@clean(held_out=True)
def factored_second_moments() -> Task:
    return _network(optimizer=lambda learning_rate: optax.adafactor(learning_rate))


@clean
def accumulated_by_fit() -> tuple[Task, FitConfig]:
    return _network(), FitConfig(accumulate=4, learning_rate=1e-2)


@clean
def accumulated_by_optax() -> Task:
    return _network(optimizer=optax.MultiSteps(optax.adam(1e-2), 4))


@clean(held_out=True)
def mixed_precision() -> tuple[Task, FitConfig]:
    return _network(), FitConfig(precision="bfloat16", learning_rate=1e-2)


@clean
def moving_average_of_parameters() -> tuple[Task, FitConfig]:
    task = _network(validation=Arrays(_points(64, 5), batch_size=32))
    return task, FitConfig(ema=0.99, learning_rate=1e-2)


@clean
def fine_tuning_of_the_head() -> Task:
    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"body": dense(k1, 6, 32), "head": dense(k2, 32, CLASSES)}

    return classifier(
        lambda p, b: apply(p["head"], jnp.tanh(apply(p["body"], b["x"]))),
        init,
        trainable=lambda params: only(params, "head"),
    )


@clean(held_out=True)
def low_rank_adapters() -> Task:
    """The second factor starts at zero, so the first has no gradient in the first step."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        base = {"w": jax.random.normal(k1, (6, 32)) / 6**0.5, "out": dense(k2, 32, CLASSES)}
        return {"base": base, "a": jax.random.normal(k3, (6, 2)) / 6**0.5, "b": jnp.zeros((2, 32))}

    def predict(params: Any, batch: Any) -> jax.Array:
        w = params["base"]["w"] + params["a"] @ params["b"]
        return apply(params["base"]["out"], jnp.tanh(batch["x"] @ w))

    def adapters(params: Any) -> Any:
        return {"base": jax.tree.map(lambda _: False, params["base"]), "a": True, "b": True}

    return classifier(predict, init, trainable=adapters, optimizer=lambda rate: optax.adam(10 * rate))


@clean
def arrays_with_validation() -> Task:
    return _network(
        data=Arrays(_points(512, 1), batch_size=32), validation=Arrays(_points(128, 2), batch_size=64)
    )


@clean
def loader_with_augmentation() -> Task:
    points = _points(320, 1)

    def epoch_of(epoch: int) -> Iterator[Any]:
        random = np.random.default_rng(epoch)
        for rows in random.permutation(320).reshape(10, 32):
            noise = random.normal(scale=0.1, size=(32, 6)).astype(np.float32)
            yield {"x": points["x"][rows] + noise, "y": points["y"][rows]}

    return _network(data=Stream(epoch_of))


@clean(held_out=True)
def dropout() -> Task:
    def logits(params: Any, x: jax.Array, key: Any = None) -> jax.Array:
        h = jnp.tanh(apply(params[0], x))
        if key is not None:
            h = jnp.where(jax.random.bernoulli(key, 0.8, h.shape), h / 0.8, 0.0)
        return apply(params[1], h)

    return classifier(
        lambda params, batch: logits(params, batch["x"]),
        lambda key: mlp(key, 6, 16, CLASSES),
        loss=lambda params, batch, key: (cross_entropy(logits(params, batch["x"], key), batch["y"]), {}),
        evaluate=lambda params, batch: {"loss": cross_entropy(logits(params, batch["x"]), batch["y"])},
        validation=Arrays(_points(64, 5), batch_size=32),
    )


@clean
def batch_normalization() -> Task:
    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        params = {"first": dense(k1, 6, 16), "scale": jnp.ones(16), "out": dense(k2, 16, CLASSES)}
        return params, {"mean": jnp.zeros(16), "variance": jnp.ones(16)}

    def finish(params: Any, x: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
        return apply(params["out"], jnp.tanh((x - mean) / jnp.sqrt(variance + 1e-5) * params["scale"]))

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        x = apply(params["first"], batch["x"])
        now = {"mean": x.mean(0), "variance": x.var(0)}
        after = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state, now)
        return cross_entropy(finish(params, x, now["mean"], now["variance"]), batch["y"]), {}, after

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return finish(params, apply(params["first"], batch["x"]), state["mean"], state["variance"])

    return classifier(predict, init, loss=loss)
