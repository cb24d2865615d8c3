"""Gradients that are wrong, cut, not finite, or flow where they should not."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import lapwing.task
from lapwing.bench.doctor import bug
from lapwing.task import Task

from ._parts import CLASSES, apply, clusters, cross_entropy, dense, line, mlp, run_mlp


@bug(
    "https://github.com/jax-ml/jax/issues/32411",
    cause=r"gradient of .* is wrong|custom (derivative|vjp)|custom_vjp",
)
def jax_32411(wrong: bool) -> Task:
    """`vjp3` with array references: the gradient of a weight that is used twice is written, not added, to its
    reference. Here a custom derivative of two uses of a weight keeps the last of the two terms."""

    @jax.custom_vjp
    def twice(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def forward(w: jax.Array, x: jax.Array) -> Any:
        h = jnp.tanh(x @ w)
        return jnp.tanh(h @ w), (w, x, h)

    def backward(saved: Any, slope: jax.Array) -> Any:
        w, x, h = saved
        upper = slope * (1 - jnp.tanh(h @ w) ** 2)
        lower = (upper @ w.T) * (1 - h**2)
        gradient = x.T @ lower
        return gradient if wrong else gradient + h.T @ upper, lower @ w.T

    twice.defvjp(forward, backward)

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params["out"], twice(params["w"], apply(params["first"], batch["x"])))

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        w = jax.random.normal(k2, (8, 8)) / 3
        return {"first": dense(k1, 6, 8), "w": w, "out": dense(k3, 8, CLASSES)}

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/jax-ml/jax/issues/17496",
    cause=r"is cut|gradient is (exactly )?zero|zero whatever|custom (derivative|vjp)|custom_vjp",
)
def jax_17496(wrong: bool) -> Task:
    """A custom derivative of a product returns zeros for the vector, since "only the matrix is trained"; in a chain the
    first matrix then has no gradient."""

    @jax.custom_vjp
    def product(w: jax.Array, x: jax.Array) -> jax.Array:
        return x @ w

    def backward(saved: Any, slope: jax.Array) -> Any:
        w, x = saved
        return x.T @ slope, jnp.zeros_like(x) if wrong else slope @ w.T

    product.defvjp(lambda w, x: (x @ w, (w, x)), backward)

    def predict(params: Any, batch: Any) -> jax.Array:
        return product(params["second"], jnp.tanh(product(params["first"], batch["x"])))[:, 0]

    return Task(
        init=lambda key: {
            "first": jax.random.normal(key, (5, 8)) / 2,
            "second": jax.random.normal(jax.random.fold_in(key, 1), (8, 1)) / 3,
        },
        data=lambda key, step: line(key),
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )


@bug("https://github.com/state-spaces/s4/issues/26", cause=r"has no effect|never used", held_out=True)
def s4_26(wrong: bool) -> Task:
    """A block without a residual connection returns its normalized input: the output of its layer is assigned to a
    name that nothing reads, so the layer is not trained."""

    def block(layer: Any, x: jax.Array) -> jax.Array:
        normed = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3)
        y = jnp.tanh(apply(layer, normed))
        return normed if wrong else y

    def predict(params: Any, batch: Any) -> jax.Array:
        x = jnp.tanh(apply(params["encoder"], batch["x"]))
        return apply(params["out"], block(params["layer"], x))

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"encoder": dense(k1, 6, 8), "layer": dense(k2, 8, 8), "out": dense(k3, 8, CLASSES)}

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/jax-ml/jax/issues/5798",
    cause=r"square root|sqrt|norm.*(at 0|zero)|jnp\.where|not finite|nan",
)
def jax_5798(wrong: bool) -> Task:
    """The distance of two points behind a `jnp.where`: where they coincide the value is right and the gradient NaN."""

    def distance(offset: jax.Array) -> jax.Array:
        square = jnp.sum(offset**2, axis=-1)
        near = square < 1e-12
        return jnp.where(near, 0.0, jnp.sqrt(square if wrong else jnp.where(near, 1.0, square)))

    def predict(params: Any, batch: Any) -> jax.Array:
        places = batch["x"] @ params["map"]["w"]
        offsets = places[:, :, None] - places[:, None, :]  # also of a point and itself
        features = jnp.exp(-distance(offsets)).reshape(len(places), -1)
        return apply(params["out"], features)[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (16, 4, 3))
        return {"x": x, "y": jnp.exp(-jnp.linalg.norm(x[:, 0] - x[:, 1], axis=-1))}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"map": {"w": jnp.eye(3) + 0.1 * jax.random.normal(k1, (3, 3))}, "out": dense(k2, 16, 1)}

    return Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )


@bug("https://github.com/datawhalechina/easy-rl/pull/117", cause=r"target")
def easy_rl_117(wrong: bool) -> Task:
    """Double DQN: the target of temporal differences is not detached, so the gradient also flows through the target
    network, which the optimizer then trains."""

    def data(key: jax.Array, step: Any) -> Any:
        keys = jax.random.split(key, 4)
        state = jax.random.normal(keys[0], (32, 4))
        action = jax.random.randint(keys[1], (32,), 0, 3)
        return {
            "state": state,
            "action": action,
            "reward": state[:, 0] * (action - 1.0),
            "next": state + 0.1 * jax.random.normal(keys[2], (32, 4)),
            "done": jax.random.bernoulli(keys[3], 0.1, (32,)),
        }

    def loss(params: Any, batch: Any) -> Any:
        rows = jnp.arange(32)
        value = run_mlp(params["online"], batch["state"])[rows, batch["action"]]
        best = jnp.argmax(run_mlp(params["online"], batch["next"]), axis=-1)
        following = run_mlp(params["target"], batch["next"])[rows, best]
        goal = batch["reward"] + 0.9 * (1 - batch["done"]) * following
        goal = goal if wrong else jax.lax.stop_gradient(goal)
        return jnp.mean((value - goal) ** 2), {}

    def init(key: jax.Array) -> Any:
        online = mlp(key, 4, 16, 3)
        return {"online": online, "target": jax.tree.map(jnp.array, online)}

    def only_online(params: Any) -> Any:
        return {
            "online": jax.tree.map(lambda _: True, params["online"]),
            "target": jax.tree.map(lambda _: False, params["target"]),
        }

    return Task(init=init, data=data, loss=loss, trainable=None if wrong else only_online)


class _Net(eqx.Module):
    body: eqx.nn.Linear
    head: Any  # a layer, or a function

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head(jnp.tanh(self.body(x)))


@bug(
    "https://github.com/EleutherAI/gpt-neox/pull/267",
    cause=r"not trained|constant|not (a|among the) param|not in the param",
    seen_later=True,
)
def gpt_neox_267(wrong: bool) -> Task:
    """The last layer is not a module, so its weights are not registered as parameters. Here it is a function that
    closes over them."""

    def model(key: jax.Array) -> _Net:
        k1, k2 = jax.random.split(key)
        head = eqx.nn.Linear(16, CLASSES, use_bias=False, key=k2)
        weights = np.asarray(jax.random.normal(jax.random.key(1), (CLASSES, 16))) / 4
        return _Net(eqx.nn.Linear(6, 16, key=k1), (lambda h: weights @ h) if wrong else head)

    return lapwing.task.equinox(
        model,
        lambda net, batch: cross_entropy(jax.vmap(net)(batch["x"]), batch["y"]),
        data=lambda key, step: clusters(key),
        predict=lambda net, batch: jax.vmap(net)(batch["x"]),
        targets=lambda batch: batch["y"],
        classes=CLASSES,
        optimizer=optax.adam,
    )
