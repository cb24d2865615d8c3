"""Correct programs on vectors and images: targets that are held fixed, estimators, contrast."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import lapwing as lw
from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import apply, blobs, config, forward, layers, nll


@clean
def slow_target_network() -> Any:
    """Q-learning: the target network is a moving average in the state, and does not see a gradient."""

    def init(key: jax.Array) -> Any:
        params = layers(key, 4, 32, 3)
        return params, {"target": params}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        now, action = jax.random.normal(k1, (64, 4)), jax.random.randint(k2, (64,), 0, 3)
        after = 0.8 * now + 0.2 * jax.random.normal(k3, (64, 4)) + 0.3 * (action[:, None] - 1)
        done = jax.random.bernoulli(k4, 0.1, (64,))
        return {"now": now, "action": action, "reward": after[:, 0], "after": after, "done": done}

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        value = jnp.take_along_axis(forward(params, batch["now"]), batch["action"][:, None], 1)[:, 0]
        chosen = jnp.argmax(forward(params, batch["after"]), -1)  # double Q-learning
        later = jnp.take_along_axis(forward(state["target"], batch["after"]), chosen[:, None], 1)[:, 0]
        goal = batch["reward"] + 0.9 * jnp.where(batch["done"], 0.0, later)
        target = optax.incremental_update(params, state["target"], 0.01)
        target = jax.lax.stop_gradient(target)
        return optax.huber_loss(value, jax.lax.stop_gradient(goal)).mean(), {}, {"target": target}

    return Task(init=init, data=data, loss=loss), config()


@jax.custom_vjp
def _sign(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, 1.0, -1.0)


_sign.defvjp(lambda x: (_sign(x), x), lambda x, g: (jnp.where(jnp.abs(x) < 1, g, 0.0),))


@clean
def binary_units() -> Any:
    """Hidden units of 1 and -1 with the derivative of a clipped identity, by `custom_vjp`; declared."""

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params[1], _sign(apply(params[0], batch["x"])))

    task = Task(
        init=lambda key: layers(key, 5, 48, 3),
        data=lambda key, step: blobs(key),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
        expected_findings={"gradients": "the sign has the derivative of a clipped identity, on purpose"},
    )
    return task, config()


@clean
def bandit_with_a_running_baseline() -> Any:
    """REINFORCE: the reward has no gradient, and is compared with a moving average in the state."""

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        log_p = jax.nn.log_softmax(forward(params, batch["seen"]))
        action = jax.random.categorical(key, log_p)
        reward = jnp.where(action == batch["best"], 1.0, 0.0)
        advantage = jax.lax.stop_gradient(reward - state["baseline"])
        taken = jnp.take_along_axis(log_p, action[:, None], 1)[:, 0]
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, -1)
        after = {"baseline": 0.95 * state["baseline"] + 0.05 * reward.mean()}
        return -jnp.mean(taken * advantage + 0.01 * entropy), {"reward": reward.mean()}, after

    def data(key: jax.Array, step: Any) -> Any:
        seen = jax.random.normal(key, (64, 4))
        return {"seen": seen, "best": jnp.argmax(seen, -1)}

    task = Task(
        init=lambda key: (layers(key, 4, 24, 4), {"baseline": jnp.zeros(())}),
        data=data,
        loss=loss,
    )
    return task, config(400, 5e-3)


@clean
def frozen_embeddings() -> Any:
    """Pretrained embeddings are not trained, and are declared so; words not in a batch have no effect anyway."""
    pretrained = jax.random.normal(jax.random.key(41), (60, 12))

    def init(key: jax.Array) -> Any:
        return {"embed": pretrained, "net": layers(key, 12, 24, 2)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params["net"], params["embed"][batch["words"]].mean(1))

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (24, 4), 0, 60)
        return {"words": words, "label": (words.sum(1) % 60 > 29).astype(int)}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        trainable=lambda params: {"embed": False, "net": jax.tree.map(lambda _: True, params["net"])},
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=2,
    )
    return task, config()


@clean
def mixup_with_smooth_labels() -> Any:
    """`prepare` mixes each example with another one of the batch; the labels are mixed too, and smoothed."""

    def prepare(params: Any, batch: Any, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        other, share = jax.random.permutation(k1, 32), jax.random.beta(k2, 0.4, 0.4)
        goal = optax.smooth_labels(jax.nn.one_hot(batch["label"], 3), 0.1)
        mixed = share * batch["x"] + (1 - share) * batch["x"][other]
        return {"x": mixed, "goal": share * goal + (1 - share) * goal[other], "label": batch["label"]}

    def loss(params: Any, batch: Any) -> Any:
        return optax.softmax_cross_entropy(forward(params, batch["x"]), batch["goal"]).mean(), {}

    task = Task(
        init=lambda key: layers(key, 5, 24, 3),
        data=lambda key, step: blobs(key),
        prepare=prepare,
        loss=loss,
        predict=lambda params, batch: forward(params, batch["x"]),
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@clean
def autoencoder_with_categories() -> Any:
    """Hard Gumbel samples in the forward pass, soft ones in the gradient; the divergence from the uniform law."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"encoder": layers(k1, 8, 32, 12), "decoder": layers(k2, 12, 32, 8)}

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        logits = forward(params["encoder"], batch["x"]).reshape(-1, 3, 4)
        soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / 0.7)
        hard = jax.nn.one_hot(soft.argmax(-1), 4)
        z = soft + jax.lax.stop_gradient(hard - soft)
        error = jnp.sum((forward(params["decoder"], z.reshape(-1, 12)) - batch["x"]) ** 2, -1)
        q = jax.nn.softmax(logits)
        divergence = jnp.sum(q * (jax.nn.log_softmax(logits) + jnp.log(4.0)), (-1, -2))
        return jnp.mean(error + 0.5 * divergence), {"error": error.mean()}

    task = Task(init=init, data=lambda key, step: {"x": blobs(key, 32, 8, 6)["x"]}, loss=loss)
    return task, config()


@clean
def mean_teacher() -> Any:
    """Most examples have no label; the student should agree with an average of itself, which is in the state."""

    def init(key: jax.Array) -> Any:
        params = layers(key, 5, 24, 3)
        return params, params

    def data(key: jax.Array, step: Any) -> Any:
        batch = blobs(key)
        return {**batch, "label": jnp.where(jnp.arange(32) < 6, batch["label"], -1)}

    def loss(params: Any, batch: Any, teacher: Any, key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        noisy = lambda k: batch["x"] + 0.3 * jax.random.normal(k, batch["x"].shape)  # noqa: E731
        logits, labelled = forward(params, noisy(k1)), batch["label"] >= 0
        goal = jax.lax.stop_gradient(jax.nn.softmax(forward(teacher, noisy(k2))))
        each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(batch["label"], 0))
        known = jnp.sum(each * labelled) / jnp.maximum(labelled.sum(), 1)
        agreement = jnp.mean(jnp.sum((jax.nn.softmax(logits) - goal) ** 2, -1))
        after = jax.tree.map(lambda t, p: 0.98 * t + 0.02 * p, teacher, params)
        return known + agreement, {"known": known}, jax.lax.stop_gradient(after)

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=lambda params, batch, teacher: forward(teacher, batch["x"]),
        targets=lambda batch: batch["label"],
    )
    return task, config()


class NormedImageNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), strides=2, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(8, momentum=0.9, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = nnx.relu(self.norm(self.conv(x)))
        return self.out(self.dropout(h.mean((1, 2))))


@clean
def batch_norm_and_dropout() -> Any:
    """Examples influence each other by the statistics of the batch in training, and not in evaluation."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        label = jax.random.randint(k1, (32,), 0, 3)
        wave = jnp.sin((label[:, None, None] + 1) * jnp.arange(8) * 0.9)
        return {"image": (wave + 0.3 * jax.random.normal(k2, (32, 8, 8)))[..., None], "label": label}

    task = lw.task.nnx(
        NormedImageNet,
        lambda model, batch: nll(model(batch["image"]), batch["label"]),
        data=data,
        evaluate=lambda model, key: {"loss": nll(model(data(key, 0)["image"]), data(key, 0)["label"])},
        predict=lambda model, batch: model(batch["image"]),
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@clean
def pairs_of_two_kinds() -> Any:
    """Two encoders and a learned temperature: each pair is compared with all others of the batch; declared."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"left": layers(k1, 6, 24, 8), "right": layers(k2, 10, 24, 8), "log_scale": jnp.log(10.0)}

    def unit(x: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.sum(x**2, -1, keepdims=True) + 1e-6)

    def loss(params: Any, batch: Any) -> Any:
        left, right = (unit(forward(params[name], batch[name])) for name in ("left", "right"))
        scores = left @ right.T * jnp.exp(jnp.minimum(params["log_scale"], jnp.log(100.0)))
        here = jnp.arange(len(left))
        return (nll(scores, here) + nll(scores.T, here)) / 2, {}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        hidden = jax.random.normal(k1, (24, 4))
        mix = jax.random.normal(jax.random.key(6), (4, 16))
        both = hidden @ mix + 0.2 * jax.random.normal(k2, (24, 16))
        return {"left": both[:, :6], "right": jnp.tanh(both[:, 6:])}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=lambda params, batch: unit(forward(params["left"], batch["left"])),
        expected_findings={"batch_independence": "each pair is compared with the others of its batch"},
    )
    return task, config()
