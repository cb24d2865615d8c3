"""Training and evaluation: dropout, statistics, random keys."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

import lapwing.task
from lapwing.bench.doctor import bug
from lapwing.task import Arrays, Task

from ._parts import CLASSES, apply, clusters, cross_entropy, dense, line, mlp, run_mlp

_DROPOUT = r"dropout|draws random|random numbers|training mode|train(ing)? and evaluation"


def _held_out(count: int = 64) -> Arrays:
    return Arrays(jax.tree.map(np.asarray, clusters(jax.random.key(99), count)), batch_size=32)


def _drop(x: jax.Array, key: jax.Array | None, rate: float = 0.2) -> jax.Array:
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def _dropping(predict_key: Any, train_key: Any) -> Task:
    """A classifier with dropout: the keys that it uses in prediction and in training."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"first": dense(k1, 6, 32), "out": dense(k2, 32, CLASSES)}

    def logits(params: Any, x: jax.Array, key: Any) -> jax.Array:
        return apply(params["out"], _drop(jnp.tanh(apply(params["first"], x)), key))

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        return cross_entropy(logits(params, batch["x"], train_key(key)), batch["y"]), {}

    def evaluate(params: Any, batch: Any) -> Any:
        value = cross_entropy(logits(params, batch["x"], predict_key()), batch["y"])
        return {"loss": value}

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=loss,
        evaluate=evaluate,
        validation=_held_out(),
        predict=lambda params, batch: logits(params, batch["x"], predict_key()),
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug("https://github.com/huggingface/transformers/pull/33844", cause=_DROPOUT)
def transformers_33844(wrong: bool) -> Task:
    """The dropout of the attention stays on in evaluation."""
    return _dropping(lambda: jax.random.key(0) if wrong else None, lambda key: key)


@bug(
    "https://github.com/elixir-nx/axon/issues/423",
    cause=r"same (random|key|mask|dropout)|key .*(constant|fixed|every step)|constant key|does not depend on the key",
)
def axon_423(wrong: bool) -> Task:
    """The keys of dropout are made when the model is built: every step drops the same units."""
    return _dropping(lambda: None, lambda key: jax.random.key(0) if wrong else key)


class _Blocks(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    out: eqx.nn.Linear
    drop: eqx.nn.Dropout

    def __init__(self, key: jax.Array):
        k1, k2, k3 = jax.random.split(key, 3)
        self.first, self.second = eqx.nn.Linear(6, 16, key=k1), eqx.nn.Linear(16, 16, key=k2)
        self.out, self.drop = eqx.nn.Linear(16, CLASSES, key=k3), eqx.nn.Dropout(0.2)

    def __call__(self, x: jax.Array, key: jax.Array | None = None) -> jax.Array:
        k1, k2 = (None, None) if key is None else jax.random.split(key)
        x = self.drop(jnp.tanh(self.first(x)), key=k1)
        return self.out(self.drop(jnp.tanh(self.second(x)), key=k2))


def _blocks(model: Any, loss: Any) -> Task:
    return lapwing.task.equinox(
        model,
        loss,
        data=lambda key, step: clusters(key),
        validation=_held_out(),
        predict=lambda net, batch: jax.vmap(net)(batch["x"]),
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/patrick-kidger/equinox/pull/316",
    cause=r"same (mask|key|random|units|numbers)|mask .*(every|all) example|one key",
    seen_later=True,
)
def equinox_316(wrong: bool) -> Task:
    """The BERT example gives one key to all examples and positions: all drop the same units."""

    def loss(net: Any, batch: Any, key: jax.Array) -> Any:
        keys = key if wrong else jax.random.split(key, len(batch["x"]))
        logits = jax.vmap(net, in_axes=(0, None if wrong else 0))(batch["x"], keys)
        return cross_entropy(logits, batch["y"])

    return _blocks(_Blocks, loss)


@bug(
    "https://github.com/Lightning-AI/pytorch-lightning/issues/20177",
    cause=r"dropout|key .*(not|never) used|never uses|inference|evaluation mode|takes a key",
)
def lightning_20177(wrong: bool) -> Task:
    """The model is not set back to training after a validation: dropout stays off."""

    def loss(net: Any, batch: Any, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(batch["x"]))
        return cross_entropy(jax.vmap(net)(batch["x"], keys), batch["y"])

    return _blocks(lambda key: eqx.nn.inference_mode(_Blocks(key), wrong), loss)


@bug(
    "https://github.com/dunnolab/xland-minigrid/issues/42",
    cause=r"key .*(twice|again|more than once|reuse)|reused? .*key|same key",
)
def xland_minigrid_42(wrong: bool) -> Task:
    """A key is split, and then the old key is used for both purposes: tasks and resets are drawn with the same
    numbers. Here the noise of the input and that of the latent."""

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        _, first, second = jax.random.split(key, 3)
        first, second = (key, key) if wrong else (first, second)
        x = batch["x"] + 0.1 * jax.random.normal(first, batch["x"].shape)
        mean, log_scale = jnp.split(run_mlp(params["encode"], x), 2, axis=-1)
        latent = mean + jnp.exp(log_scale) * jax.random.normal(second, mean.shape)
        again = run_mlp(params["decode"], latent)
        divergence = 0.5 * jnp.sum(jnp.exp(2 * log_scale) + mean**2 - 1 - 2 * log_scale, axis=-1)
        return jnp.mean(jnp.sum((again - batch["x"]) ** 2, -1) + 0.01 * divergence), {}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"encode": mlp(k1, 6, 16, 12), "decode": mlp(k2, 6, 16, 6)}

    return Task(init=init, data=lambda key, step: {"x": clusters(key)["x"]}, loss=loss)


class _Normed(linen.Module):
    @linen.compact
    def __call__(self, x: Any, train: bool = False) -> jax.Array:
        x = linen.Dense(16)(x)
        x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return linen.Dense(CLASSES)(linen.tanh(x))


def _normed(keep: bool, predict_in_training: bool) -> Task:
    """A classifier with batch normalization, applied by hand as the guides of Flax do."""
    module = _Normed()

    def init(key: jax.Array) -> Any:
        variables = dict(module.init(key, jnp.zeros((1, 6))))
        return variables.pop("params"), variables

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        logits, changed = module.apply(
            {"params": params, **state}, batch["x"], train=True, mutable=["batch_stats"]
        )
        return cross_entropy(logits, batch["y"]), {}, changed if keep else state

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        variables = {"params": params, **state}
        if predict_in_training:
            return module.apply(variables, batch["x"], train=True, mutable=["batch_stats"])[0]
        return module.apply(variables, batch["x"])  # pyright: ignore

    def evaluate(params: Any, batch: Any, state: Any) -> Any:
        return {"loss": cross_entropy(predict(params, batch, state), batch["y"])}

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=loss,
        evaluate=evaluate,
        validation=_held_out(),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/paiml/aprender/pull/2166",
    cause=r"statistic|state .*(never|unchanged|not change)|never updated|batch_stats",
    held_out=True,
)
def aprender_2166(wrong: bool) -> Task:
    """The running statistics of batch normalization are computed and thrown away: evaluation uses the initial ones."""
    return _normed(keep=not wrong, predict_in_training=False)


@bug(
    "https://github.com/Lightning-AI/pytorch-lightning/issues/18813",
    cause=r"batch statistic|BatchNorm|training mode|statistics of the batch",
)
def lightning_18813(wrong: bool) -> Task:
    """A callback leaves the model in training mode, and the validation runs in it: predictions use the statistics of
    the batch."""
    return _normed(keep=True, predict_in_training=wrong)


@bug(
    "https://github.com/patrick-kidger/equinox/issues/1010",
    cause=r"nan|not finite|\binf\b|division by|divide",
)
def equinox_1010(wrong: bool) -> Task:
    """Batch normalization with unbiased running averages divides by 1 - momentum^0 = 0 in an evaluation before the
    first step."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        params = {"first": dense(k1, 6, 16), "out": dense(k2, 16, CLASSES)}
        return params, {"mean": jnp.zeros(16), "square": jnp.zeros(16), "count": jnp.int32(0)}

    def finish(params: Any, x: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
        return apply(params["out"], jnp.tanh((x - mean) / jnp.sqrt(variance + 1e-5)))

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        x = apply(params["first"], batch["x"])
        mean, square = x.mean(0), (x**2).mean(0)
        after = {
            "mean": 0.9 * state["mean"] + 0.1 * mean,
            "square": 0.9 * state["square"] + 0.1 * square,
            "count": state["count"] + 1,
        }
        return cross_entropy(finish(params, x, mean, square - mean**2), batch["y"]), {}, after

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        count = state["count"] if wrong else jnp.maximum(state["count"], 1)
        scale = 1 - 0.9**count
        mean = state["mean"] / scale
        variance = state["square"] / scale - mean**2
        variance = variance if wrong else jnp.where(state["count"] == 0, 1.0, variance)
        return finish(params, apply(params["first"], batch["x"]), mean, variance)

    def evaluate(params: Any, batch: Any, state: Any) -> Any:
        return {"loss": cross_entropy(predict(params, batch, state), batch["y"])}

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=loss,
        evaluate=evaluate,
        validation=_held_out(),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/pytorch/pytorch/issues/51800",
    cause=r"nan|not finite|\binf\b|division by|divide",
    held_out=True,
)
def pytorch_51800(wrong: bool) -> Task:
    """Spectral normalization is set up by the first forward pass in training: a model that is evaluated before it has
    no estimate of the largest singular value."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        params = {"first": dense(k1, 5, 16), "out": dense(k2, 16, 1)}
        return params, {"u": jnp.zeros(5) if wrong else jax.random.normal(k3, (5,))}

    def direction(w: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        v = u @ w
        v = v / (jnp.linalg.norm(v) + 1e-12)
        return v, w @ v

    def output(params: Any, x: jax.Array, sigma: jax.Array) -> jax.Array:
        h = jnp.tanh(x @ (params["first"]["w"] / sigma) + params["first"]["b"])
        return apply(params["out"], h)[:, 0]

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        w = params["first"]["w"]
        start = jnp.where(jnp.any(state["u"] != 0), state["u"], jnp.ones(5))
        _, u = jax.lax.stop_gradient(direction(w, start))
        u = u / jnp.linalg.norm(u)
        v, _ = jax.lax.stop_gradient(direction(w, u))
        return jnp.mean((output(params, batch["x"], u @ w @ v) - batch["y"]) ** 2), {}, {"u": u}

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        w, u = params["first"]["w"], state["u"]
        v, _ = direction(w, u)
        return output(params, batch["x"], u @ w @ v)

    held_out = Arrays(jax.tree.map(np.asarray, line(jax.random.key(99), 64)), batch_size=32)
    return Task(
        init=init,
        data=lambda key, step: line(key),
        loss=loss,
        evaluate=lambda params, batch, state: {
            "loss": jnp.mean((predict(params, batch, state) - batch["y"]) ** 2)
        },
        validation=held_out,
        predict=predict,
        targets=lambda batch: batch["y"],
    )
