"""Mistakes in optimizers: masks, units of schedules, the order of a chain, state, precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.task import Task

from .._parts import blobs, config, forward, layers, nll, planted


def _classifier(optimizer: Any, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "init": lambda key: layers(key, 5, 24, 3),
        "data": lambda key, step: blobs(key, spread=1.5),
        "loss": lambda params, batch: (nll(forward(params, batch["x"]), batch["label"]), {}),
        "optimizer": optimizer,
        "predict": lambda params, batch: forward(params, batch["x"]),
        "targets": lambda batch: batch["label"],
        "classes": 3,
    }
    return Task(**(given | fields))


@planted(
    cause=r"mask|frozen|raw|uphill|passes|unchanged|learning rate of 1|increase|ascen",
    sees="the pretrained embedding, thought to be frozen, runs away, and the loss with it",
)
def masked_is_not_frozen(wrong: bool) -> Any:
    """`optax.masked` leaves the gradients of other leaves as they are, and they are added as updates."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"embed": 0.5 * jax.random.normal(k1, (20, 8)), "head": layers(k2, 8, 24, 3)}

    def is_trained(params: Any) -> Any:
        return {name: jax.tree.map(lambda _, name=name: name == "head", params[name]) for name in params}

    def is_frozen(params: Any) -> Any:
        return jax.tree.map(lambda trained: not trained, is_trained(params))

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params["head"], params["embed"][batch["words"]].mean(1))

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (32, 3), 0, 20)
        return {"words": words, "label": jnp.max(words, 1) // 7}

    train = optax.masked(optax.adam(1e-2), is_trained)
    optimizer = train if wrong else optax.chain(train, optax.masked(optax.set_to_zero(), is_frozen))
    task = _classifier(
        optimizer,
        init=init,
        data=data,
        predict=predict,
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
    )
    return task, config(400, 1e-3)


@planted(
    cause=r"schedule|learning rate|decay|update.*(zero|0|nothing|stop)",
    sees="the loss stops moving after 20 steps",
)
def schedule_counted_in_epochs(wrong: bool) -> Any:
    """The schedule is given its length in epochs, but optax counts updates."""
    epochs, batches = 20, 25
    rate = optax.cosine_decay_schedule(5e-3, epochs if wrong else epochs * batches)
    return _classifier(optax.adam(rate)), config(epochs * batches, 1e-3)


@planted(
    cause=r"decay|grow|sign|away from zero|weights? (get|become)|uphill",
    sees="with more decay the weights get larger, and late in training the loss explodes",
)
def decay_after_the_learning_rate(wrong: bool) -> Any:
    """`add_decayed_weights` comes after Adam, where updates have their minus sign and learning rate already: the
    weights grow."""

    def optimizer(learning_rate: Any) -> Any:
        decay = optax.add_decayed_weights(0.02)
        if wrong:
            return optax.chain(optax.adam(learning_rate), decay)
        return optax.chain(optax.scale_by_adam(), decay, optax.scale_by_learning_rate(learning_rate))

    return _classifier(optimizer), config(400, 3e-3)


@planted(
    cause=r"clip|order|after",
    sees="clipping does not stop the spikes of the loss",
)
def clipped_after_the_learning_rate(wrong: bool) -> Any:
    """The updates are clipped to a norm of 1 instead of the gradients: they are far below that in any case, except in a
    spike, where 1 is enough to ruin the weights."""

    def optimizer(learning_rate: Any) -> Any:
        clip, descend = optax.clip_by_global_norm(1.0), optax.sgd(learning_rate, momentum=0.9)
        return optax.chain(descend, clip) if wrong else optax.chain(clip, descend)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (32, 5))
        spike = jnp.where(jax.random.bernoulli(k2, 0.01, (32,)), 200.0 * jax.random.normal(k3, (32,)), 0.0)
        return {"x": x, "y": jnp.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + spike}

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((forward(params, batch["x"])[:, 0] - batch["y"]) ** 2), {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        x = jax.random.normal(key, (256, 5))
        batch = {"x": x, "y": jnp.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]}
        return {"loss without spikes": loss(params, batch)[0]}

    task = _classifier(
        optimizer,
        init=lambda key: layers(key, 5, 24, 1),
        data=data,
        loss=loss,
        evaluate=evaluate,
        predict=lambda params, batch: forward(params, batch["x"])[:, 0],
        targets=lambda batch: batch["y"],
        classes=None,
    )
    return task, config(400, 2e-2)


@planted(
    cause=r"state|moment|count|never (chang|advanc|updat)|reset|does not (change|advance)",
    sees="Adam behaves like the sign of the gradient: it falls fast and then jitters around the minimum",
)
def state_handed_back_unchanged(wrong: bool) -> Any:
    """A wrapper that drops updates of NaN returns the old state of the optimizer in both cases."""

    def skipping(inner: optax.GradientTransformation) -> optax.GradientTransformation:
        def update(updates: Any, state: Any, params: Any = None) -> Any:
            finite = jnp.isfinite(optax.tree.norm(updates))
            updates, after = inner.update(updates, state, params)
            updates = jax.tree.map(lambda u: jnp.where(finite, u, 0.0), updates)
            kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)
            return updates, state if wrong else kept

        return optax.GradientTransformation(inner.init, update)

    return _classifier(lambda learning_rate: skipping(optax.adam(learning_rate))), config(400, 2e-2)


@planted(
    cause=r"bfloat16|precision|dtype|round|too small|lost|resolution",
    sees="the loss falls for a while, and then no weight changes any more",
)
def weights_kept_in_bfloat16(wrong: bool) -> Any:
    """The parameters themselves are in bfloat16, to save memory: an update of less than a 500th of a weight is rounded
    to nothing."""
    rng = np.random.default_rng(2)
    teacher = rng.normal(size=(12,)).astype(np.float32)

    def init(key: jax.Array) -> Any:
        params = layers(key, 12, 32, 1)
        return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params) if wrong else params

    def predict(params: Any, batch: Any) -> jax.Array:
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
        return forward(params, batch["x"])[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 12))
        return {"x": x, "y": jnp.tanh(x @ teacher)}

    task = _classifier(
        optax.adam,
        init=init,
        data=data,
        predict=predict,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        targets=lambda batch: batch["y"],
        classes=None,
    )
    return task, config(600, 3e-4)
