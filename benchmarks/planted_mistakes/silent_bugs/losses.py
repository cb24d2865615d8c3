"""Mistakes in losses: shapes, links, signs, axes, what is detached, the order of arguments."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import lapwing as lw
from lapwing.task import Task

from .._parts import blobs, config, forward, layers, nll, planted


@planted(
    cause=r"broadcast|shape|weights?\b.*no effect|no effect.*weight",
    sees="giving the outliers no weight changes nothing",
)
def weights_of_one_column(wrong: bool) -> Any:
    """The weights are a column (n, 1), the errors a vector (n,): the mean over their product (n, n) is the product of
    two means."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (32, 4))
        broken = jax.random.bernoulli(k2, 0.3, (32,))
        y = jnp.sin(x[:, 0]) + x[:, 1] * x[:, 2] + broken * (3 + jax.random.normal(k3, (32,)))
        return {"x": x, "y": y, "weight": jnp.where(broken, 0.01, 1.0)[:, None]}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    def loss(params: Any, batch: Any) -> Any:
        error = (predict(params, batch) - batch["y"]) ** 2
        weight = batch["weight"] if wrong else batch["weight"][:, 0]
        return jnp.mean(weight * error), {}

    task = Task(
        init=lambda key: layers(key, 4, 32, 1),
        data=data,
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config()


class Detector(nn.Module):
    squash: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = nn.relu(nn.Dense(24)(x))
        score = nn.Dense(1)(h)[:, 0]
        return nn.sigmoid(score) if self.squash else score


@planted(
    cause=r"sigmoid|twice|logits|probabilit",
    sees="the loss stops at about 0.3 and no threshold but 0.7 gives a usable precision",
)
def sigmoid_before_a_loss_of_logits(wrong: bool) -> Any:
    """The module ends with a sigmoid, and the loss applies one more."""

    def data(key: jax.Array, step: Any) -> Any:
        batch = blobs(key)
        return {"x": batch["x"], "hit": (batch["label"] == 1).astype(jnp.float32)}

    def loss(model: Any, batch: Any) -> Any:
        return optax.sigmoid_binary_cross_entropy(model(batch["x"]), batch["hit"]).mean()

    task = lw.task.linen(
        Detector(squash=wrong),
        loss,
        jnp.ones((1, 5)),
        data=data,
        predict=lambda model, batch: model(batch["x"]),
        targets=lambda batch: batch["hit"],
        classes=2,
    )
    return task, config()


@planted(
    cause=r"sign|unbounded|negative|below|decreas\w+ without|diverg|minus|-inf",
    sees="the loss becomes negative and falls and falls, while the reconstructions get worse",
)
def divergence_with_the_wrong_sign(wrong: bool) -> Any:
    """`1 + log σ² - μ² - σ²` is minus twice the divergence; here it is added."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"encoder": layers(k1, 8, 32, 6), "decoder": layers(k2, 3, 32, 8)}

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        mean, log_variance = jnp.split(forward(params["encoder"], batch), 2, axis=-1)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        error = jnp.sum((forward(params["decoder"], z) - batch) ** 2, -1)
        divergence = 0.5 * jnp.sum(1 + log_variance - mean**2 - jnp.exp(log_variance), -1)
        total = error + divergence if wrong else error - divergence
        return jnp.mean(total), {"error": jnp.mean(error)}

    task = Task(init=init, data=lambda key, step: blobs(key, width=8)["x"], loss=loss)
    return task, config(learning_rate=2e-3)


@planted(
    cause=r"axis|batch|other examples|examples? (mix|depend)|normaliz",
    sees="the loss falls to a value that depends on the size of the batch, and the accuracy stays low",
)
def log_softmax_over_the_batch(wrong: bool) -> Any:
    """`log_softmax(logits, axis=0)` normalizes over the examples."""

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    def loss(params: Any, batch: Any) -> Any:
        log_p = jax.nn.log_softmax(predict(params, batch), axis=0 if wrong else 1)
        return -jnp.mean(jnp.take_along_axis(log_p, batch["label"][:, None], axis=1)), {}

    task = Task(
        init=lambda key: layers(key, 5, 16, 3),
        data=lambda key, step: blobs(key),
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@planted(
    cause=r"stop_gradient|detach|cut|no gradient|zero gradient|student",
    sees="distillation makes no difference: the student is as bad as one trained on the noisy labels alone",
)
def the_student_is_detached(wrong: bool) -> Any:
    """The gradient is stopped at the student instead of at the teacher."""
    teacher = layers(jax.random.key(21), 5, 32, 3)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (32, 5))
        right = jnp.argmax(forward(teacher, x), -1)
        noisy = jnp.where(jax.random.bernoulli(k2, 0.5, (32,)), jax.random.randint(k3, (32,), 0, 3), right)
        return {"x": x, "label": noisy}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    def loss(params: Any, batch: Any) -> Any:
        student, goal = predict(params, batch), forward(teacher, batch["x"])
        hard = nll(student, batch["label"])
        soft_student, soft_goal = jax.nn.log_softmax(student / 2), jax.nn.softmax(goal / 2)
        if wrong:
            soft_student = jax.lax.stop_gradient(soft_student)
        else:
            soft_goal = jax.lax.stop_gradient(soft_goal)
        return 0.2 * hard - 0.8 * 4 * jnp.mean(jnp.sum(soft_goal * soft_student, -1)), {"hard": hard}

    task = Task(
        init=lambda key: layers(key, 5, 32, 3),
        data=data,
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@planted(
    cause=r"swap|argument|order|unbounded|exchang|logits|labels",
    sees="the loss falls in a straight line to minus millions",
)
def logits_and_labels_swapped(wrong: bool) -> Any:
    """`softmax_cross_entropy(labels, logits)`: the labels are taken for logits."""

    def predict(model: eqx.nn.MLP, batch: Any) -> jax.Array:
        return jax.vmap(model)(batch["x"])

    def loss(model: eqx.nn.MLP, batch: Any) -> Any:
        logits, goal = predict(model, batch), jax.nn.one_hot(batch["label"], 3)
        both = (goal, logits) if wrong else (logits, goal)
        return optax.softmax_cross_entropy(*both).mean()

    task = lw.task.equinox(
        lambda key: eqx.nn.MLP(5, 3, 16, 1, key=key),
        loss,
        data=lambda key, step: blobs(key),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config()


@planted(
    cause=r"log.*softmax|softmax.*log|underflow|eps|small number|precision|added inside|vanish",
    sees="some examples stay wrong for ever, and their number depends on the seed",
)
def log_of_a_softmax(wrong: bool) -> Any:
    """Cosines divided by a temperature of 0.02 go through `log(softmax + 1e-6)`: an example whose class has a small
    probability has no gradient."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"net": layers(k1, 5, 16, 6), "prototypes": jax.random.normal(k2, (6, 6))}

    def unit(x: jax.Array) -> jax.Array:
        return x / jnp.sqrt(jnp.sum(x**2, -1, keepdims=True) + 1e-8)

    def predict(params: Any, batch: Any) -> jax.Array:
        return unit(forward(params["net"], batch["x"])) @ unit(params["prototypes"]).T / 0.02

    def loss(params: Any, batch: Any) -> Any:
        scores = predict(params, batch)
        log_p = jnp.log(jax.nn.softmax(scores) + 1e-6) if wrong else jax.nn.log_softmax(scores)
        return -jnp.mean(jnp.sum(log_p * jax.nn.one_hot(batch["label"], 6), -1)), {}

    task = Task(
        init=init,
        data=lambda key, step: blobs(key, classes=6, spread=0.5),
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=6,
    )
    return task, config(300, 3e-3)
