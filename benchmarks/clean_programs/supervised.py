"""Correct programs in plain JAX: regression and classification, losses with kinks, several heads, experts, graphs."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.silent_bugs._parts import CLASSES, apply, clusters, cross_entropy, dense, line, mlp, run_mlp
from lapwing.bench.doctor import clean
from lapwing.task import Task


def classifier(predict: Any, init: Any, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "init": init,
        "data": lambda key, step: clusters(key),
        "loss": lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        "predict": predict,
        "targets": lambda batch: batch["y"],
        "classes": CLASSES,
    }
    return Task(**(given | fields))


def regression(predict: Any, init: Any, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "init": init,
        "data": lambda key, step: line(key),
        "loss": lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        "predict": predict,
        "targets": lambda batch: batch["y"],
    }
    return Task(**(given | fields))


@clean
def linear_regression() -> Task:
    return regression(
        lambda params, batch: apply(params, batch["x"])[:, 0],
        lambda key: dense(key, 5, 1),
        targets=None,
    )


@clean
def logistic_regression() -> Task:
    return classifier(
        lambda params, batch: apply(params, batch["x"]),
        lambda key: {"w": jnp.zeros((6, CLASSES)), "b": jnp.zeros(CLASSES)},
    )


@clean(held_out=True)
def perceptron_with_relu() -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        h = jax.nn.relu(apply(params[0], batch["x"]))
        return apply(params[1], jax.nn.relu(h))[:, 0]

    return regression(predict, lambda key: mlp(key, 5, 32, 1))


@clean
def label_smoothing() -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        return run_mlp(params, batch["x"])

    def loss(params: Any, batch: Any) -> Any:
        labels = optax.smooth_labels(jax.nn.one_hot(batch["y"], CLASSES), 0.1)
        return jnp.mean(optax.softmax_cross_entropy(predict(params, batch), labels)), {}

    return classifier(predict, lambda key: mlp(key, 6, 16, CLASSES), loss=loss)


@clean
def binary_with_class_weights() -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        return run_mlp(params, batch["x"])[:, 0]

    def loss(params: Any, batch: Any) -> Any:
        each = optax.sigmoid_binary_cross_entropy(predict(params, batch), batch["y"])
        weight = jnp.where(batch["y"] == 1, 3.0, 1.0)
        return jnp.sum(weight * each) / jnp.sum(weight), {}

    def data(key: jax.Array, step: Any) -> Any:
        batch = clusters(key)
        return {"x": batch["x"], "y": (batch["y"] == 0).astype(jnp.float32)}

    return classifier(predict, lambda key: mlp(key, 6, 16, 1), loss=loss, data=data, classes=2)


@clean(held_out=True)
def quantile_regression() -> Task:
    """The pinball loss has a kink at every target."""

    def loss(params: Any, batch: Any) -> Any:
        error = batch["y"] - run_mlp(params, batch["x"])[:, 0]
        return jnp.mean(jnp.maximum(0.9 * error, -0.1 * error)), {}

    return regression(
        lambda p, b: run_mlp(p, b["x"])[:, 0], lambda k: mlp(k, 5, 16, 1), loss=loss, targets=None
    )


@clean(held_out=True)
def two_tasks() -> Task:
    """Each example belongs to one of two tasks, which have a head each."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        batch = clusters(k1)
        is_first = jax.random.bernoulli(k2, 0.5, (32,))
        return {"x": batch["x"], "y": batch["y"], "z": batch["x"][:, 0] ** 2, "first": is_first}

    def loss(params: Any, batch: Any) -> Any:
        h = jnp.tanh(apply(params["body"], batch["x"]))
        label = optax.softmax_cross_entropy_with_integer_labels(apply(params["label"], h), batch["y"])
        value = (apply(params["value"], h)[:, 0] - batch["z"]) ** 2
        return jnp.mean(jnp.where(batch["first"], label, 0.3 * value)), {}

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"body": dense(k1, 6, 16), "label": dense(k2, 16, CLASSES), "value": dense(k3, 16, 1)}

    return Task(init=init, data=data, loss=loss)


def _experts(key: jax.Array) -> Any:
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "gate": dense(k1, 6, 4),
        "up": jax.random.normal(k2, (4, 6, 8)) / 6**0.5,
        "down": jax.random.normal(k3, (4, 8, CLASSES)) / 8**0.5,
    }


@clean
def routed_mixture_of_experts() -> Task:
    """Each example goes to one of many experts; some get none in a batch. A loss balances them."""

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key, 9)
        return {"gate": dense(keys[0], 6, 8), "experts": [mlp(k, 6, 8, CLASSES) for k in keys[1:]]}

    def routed(params: Any, batch: Any) -> Any:
        gates = jax.nn.softmax(apply(params["gate"], batch["x"]))
        chosen = jax.nn.one_hot(jnp.argmax(gates, axis=-1), 8)
        outputs = jnp.stack([run_mlp(expert, batch["x"]) for expert in params["experts"]], axis=1)
        return jnp.einsum("be,bec->bc", gates * chosen, outputs), gates, chosen

    def loss(params: Any, batch: Any) -> Any:
        logits, gates, chosen = routed(params, batch)
        balance = 8 * jnp.sum(chosen.mean(0) * gates.mean(0))
        return cross_entropy(logits, batch["y"]) + 0.01 * balance, {}

    return classifier(lambda params, batch: routed(params, batch)[0], init, loss=loss)


@clean(held_out=True)
def graph_network() -> Task:
    """Graphs as adjacency matrices: two rounds of messages, then a sum over the nodes."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        upper = jnp.triu(jax.random.bernoulli(k1, 0.4, (16, 7, 7)), 1)
        edges = (upper | jnp.swapaxes(upper, 1, 2)).astype(jnp.float32)
        nodes = jax.random.normal(k2, (16, 7, 3))
        return {"edges": edges, "nodes": nodes, "y": jnp.einsum("bij,bi->b", edges, nodes[..., 0]) / 7}

    def predict(params: Any, batch: Any) -> jax.Array:
        h = jnp.tanh(apply(params[0], batch["nodes"]))
        for layer in params[1:-1]:
            h = jnp.tanh(apply(layer, h + batch["edges"] @ h))
        return apply(params[-1], h.sum(1))[:, 0]

    return regression(predict, lambda key: mlp(key, 3, 12, 12, 12, 1), data=data)


@clean
def recommendations() -> Task:
    """Factors of users and items; most are in no batch."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        user, item = jax.random.randint(k1, (64,), 0, 40), jax.random.randint(k2, (64,), 0, 30)
        return {"user": user, "item": item, "y": jnp.sin(user * 0.7) * jnp.cos(item * 0.3)}

    def predict(params: Any, batch: Any) -> jax.Array:
        u, i = params["user"][batch["user"]], params["item"][batch["item"]]
        return jnp.sum(u * i, -1) + params["bias"][batch["item"]]

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        user, item = 0.3 * jax.random.normal(k1, (40, 6)), 0.3 * jax.random.normal(k2, (30, 6))
        return {"user": user, "item": item, "bias": jnp.zeros(30)}

    return regression(predict, init, data=data)


@clean(held_out=True)
def distillation() -> Task:
    """The student learns from a fixed teacher, whose weights are constants."""
    teacher = mlp(jax.random.key(5), 6, 32, CLASSES)

    def loss(params: Any, batch: Any) -> Any:
        goal = jax.nn.softmax(run_mlp(teacher, batch["x"]) / 2)
        student = jax.nn.log_softmax(run_mlp(params, batch["x"]) / 2)
        hard = cross_entropy(run_mlp(params, batch["x"]), batch["y"])
        return 0.5 * hard - 0.5 * jnp.mean(jnp.sum(goal * student, -1)), {}

    return classifier(lambda p, b: run_mlp(p, b["x"]), lambda key: mlp(key, 6, 16, CLASSES), loss=loss)


@clean
def adversarial_training() -> Task:
    def attack(params: Any, batch: Any, key: jax.Array) -> Any:
        slope = jax.grad(lambda x: cross_entropy(run_mlp(params, x), batch["y"]))(batch["x"])
        return batch | {"x": batch["x"] + 0.1 * jnp.sign(slope)}

    return classifier(lambda p, b: run_mlp(p, b["x"]), lambda key: mlp(key, 6, 16, CLASSES), prepare=attack)


@clean
def physics_informed() -> Task:
    """The loss contains derivatives of the network: u'' = -u, u(0) = 0, u'(0) = 1."""

    def u(params: Any, t: jax.Array) -> jax.Array:
        return run_mlp(params, t[None])[0]

    def loss(params: Any, batch: Any) -> Any:
        first = jax.grad(u, 1)
        second = jax.vmap(jax.grad(first, 1), (None, 0))(params, batch["t"])
        values = jax.vmap(u, (None, 0))(params, batch["t"])
        start = u(params, jnp.zeros(())) ** 2 + (first(params, jnp.zeros(())) - 1) ** 2
        return jnp.mean((second + values) ** 2) + start, {}

    return Task(
        init=lambda key: mlp(key, 1, 16, 1),
        data=lambda key, step: {"t": jax.random.uniform(key, (32,), maxval=3.0)},
        loss=loss,
    )
