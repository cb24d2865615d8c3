"""Mistakes between training and evaluation, and between devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from lapwing.task import Arrays, Task

from .._parts import apply, blobs, config, forward, layers, linear, nll, planted


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(24)(x))
        return nn.Dense(4)(nn.relu(x))


@planted(
    cause=r"running|statistics|(train|eval|inference)\w* mode|batch.?norm|other (examples|rows)|across the batch"
    r"|batch independen",
    sees="the accuracy depends on how the validation is sorted, and is at chance where it is sorted by class",
)
def validated_by_the_statistics_of_its_batches(wrong: bool) -> Any:
    """`train=True` was left in the call that predicts: batch normalisation uses the means of the batch that it
    predicts, and the batches of the validation have one class each."""
    model = Normed()
    held = blobs(jax.random.key(8), 256, 6, 4)
    order = np.argsort(np.asarray(held["label"]), kind="stable")

    def init(key: jax.Array) -> Any:
        made = model.init(key, jnp.zeros((2, 6)), train=False)
        return made["params"], {"batch_stats": made["batch_stats"]}

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        logits, state = model.apply(
            {"params": params, **state}, batch["x"], train=True, mutable=["batch_stats"]
        )
        return nll(logits, batch["label"]), {}, dict(state)

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        return model.apply({"params": params, **state}, batch["x"], train=wrong, mutable=["batch_stats"])[0]

    def evaluate(params: Any, batch: Any, state: Any) -> Any:
        logits = predict(params, batch, state)
        return {"right": jnp.mean(logits.argmax(1) == batch["label"]), "loss": nll(logits, batch["label"])}

    task = Task(
        init=init,
        data=Arrays(jax.tree.map(np.asarray, blobs(jax.random.key(7), 512, 6, 4)), 32),
        validation=Arrays(jax.tree.map(lambda leaf: np.asarray(leaf)[order], held), 32),
        loss=loss,
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=4,
    )
    return task, config(300)


@planted(
    cause=r"device|pmean|shard|replica|statistic|axis_name|batch.?norm|parts of (a|the) batch|running",
    sees="training on eight devices ends worse than on one, and the evaluation is worse still",
)
def statistics_of_the_first_device(wrong: bool) -> Any:
    """Eight devices have four examples each, which come sorted: each normalises by its own four, for want of a `pmean`,
    and the running statistics that are kept are those of the first."""

    def normalise(x: jax.Array) -> Any:
        mean, square = x.mean(0), jnp.mean(x**2, 0)
        if not wrong:
            mean, square = jax.lax.pmean((mean, square), "devices")
        variance = square - mean**2
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5), {"mean": mean, "variance": variance}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        params = {"in": linear(k1, 6, 24), "out": layers(k2, 24, 4)}
        return params, {"mean": jnp.zeros(24), "variance": jnp.ones(24)}

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        def on_device(part: Any) -> Any:
            h, now = normalise(apply(params["in"], part["x"]))
            return nll(forward(params["out"], jnp.tanh(h)), part["label"]), now

        parts = jax.tree.map(lambda leaf: leaf.reshape(8, 4, *leaf.shape[1:]), batch)
        values, now = jax.vmap(on_device, axis_name="devices")(parts)
        state = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new[0], state, now)
        return values.mean(), {}, state

    def predict(params: Any, batch: Any, state: Any) -> jax.Array:
        h = apply(params["in"], batch["x"]) - state["mean"]
        return forward(params["out"], jnp.tanh(h * jax.lax.rsqrt(state["variance"] + 1e-5)))

    def data(key: jax.Array, step: Any) -> Any:
        batch = blobs(key, 32, 6, 4)
        return jax.tree.map(lambda leaf: leaf[jnp.argsort(batch["label"])], batch)

    def evaluate(params: Any, key: jax.Array, state: Any) -> Any:
        batch = blobs(key, 256, 6, 4)
        return {"loss": nll(predict(params, batch, state), batch["label"])}

    task = Task(
        init,
        data,
        loss,
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=4,
    )
    return task, config(300)


def averaged_over_devices() -> optax.GradientTransformation:
    """Gives every device the mean of all gradients: what `pmean` does in a step for many devices."""
    mean = lambda g: jnp.broadcast_to(g.mean(0, keepdims=True), g.shape)  # noqa: E731
    return optax.stateless(lambda updates, params: jax.tree.map(mean, updates))


@planted(
    cause=r"replica|device|drift|part(s|ed)? from|apart|diverge|pmean|averag|synchroni|copies|differ from each other",
    sees="with four devices the checkpoint, which is that of the first, is as bad as with a quarter of the data",
)
def replicas_without_an_average(wrong: bool) -> Any:
    """Each of four devices has its copy of the weights, and follows the gradients of its own examples only: nothing
    averages them, and the copies part. The first is saved."""

    def init(key: jax.Array) -> Any:
        params = layers(key, 8, 32, 1)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (4, *leaf.shape)), params)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = (
            jax.random.normal(k1, (4, 6, 8)) + jnp.arange(4.0)[:, None, None] - 1.5
        )  # each device its own region
        return {"x": x, "y": jnp.sin(x[..., :1] + x[..., 1:2]) + 0.3 * jax.random.normal(k2, (4, 6, 1))}

    def loss(params: Any, batch: Any) -> Any:
        each = jax.vmap(lambda p, part: jnp.mean((forward(p, part["x"]) - part["y"]) ** 2))(params, batch)
        return each.mean(), {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        first, batch = jax.tree.map(lambda leaf: leaf[0], params), data(key, 0)
        return {"loss": jnp.mean((forward(first, batch["x"]) - batch["y"]) ** 2)}

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        adam = optax.adam(learning_rate)
        return adam if wrong else optax.chain(averaged_over_devices(), adam)

    task = Task(init, data, loss, evaluate=evaluate, optimizer=optimizer, batch_axis=1)
    return task, config(400)
