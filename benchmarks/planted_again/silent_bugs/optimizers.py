"""Mistakes in optimizers: what is frozen, decay, schedules, accumulation, clipping, state, sign."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import lapwing as lw
from lapwing.task import Task

from .._parts import config, forward, layers, nll, planted, split_rows


class BagOfWords(nn.Module):
    @nn.compact
    def __call__(self, words: jax.Array) -> jax.Array:
        centers = self.param("centers", nn.initializers.normal(1.0), (6, 12))
        h = nn.Embed(40, 6)(words).mean(1) @ centers
        return nn.Dense(5)(nn.tanh(nn.Dense(16)(h)))


@planted(
    cause=r"embed|frozen|freez|label|never (chang|mov|train|updat)|not (trained|updated)|(zero|no) update",
    sees="the model learns something, from the layers after the words, and less than a table of words would",
)
def embedding_frozen_by_its_label(wrong: bool) -> Any:
    """Fixed centers should be frozen, and the groups are made of names: what is neither a kernel nor a bias is frozen,
    the embedding of the words too."""
    worth = jax.random.normal(jax.random.key(4), (40, 5))

    def group(path: Any, leaf: Any) -> str:
        name = path[-1].key
        frozen = name not in ("kernel", "bias") if wrong else name == "centers"
        return "frozen" if frozen else "trained"

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        kinds: dict[Hashable, Any] = {"trained": optax.adam(learning_rate), "frozen": optax.set_to_zero()}
        return optax.multi_transform(kinds, lambda params: jax.tree_util.tree_map_with_path(group, params))

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (48, 8), 0, 40)
        return {"words": words, "topic": jnp.argmax(worth[words].sum(1), 1)}

    task = lw.task.linen(
        BagOfWords(),
        lambda model, batch: nll(model(batch["words"]), batch["topic"]),
        jnp.zeros((1, 8), int),
        data=data,
        optimizer=optimizer,
        predict=lambda model, batch: model(batch["words"]),
        targets=lambda batch: batch["topic"],
        classes=5,
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"decay",
    sees="good films are rated like bad ones; the table of what people like beyond that grows and learns the noise",
)
def decay_of_all_but_the_matrices(wrong: bool) -> Any:
    """The mask of the weight decay is the other way round: the vectors of offsets shrink, the matrices do not."""
    rng = np.random.default_rng(6)
    people, films = rng.integers(0, 60, 2400), rng.integers(0, 50, 2400)
    liked = 2 * rng.normal(size=50)[films] + 1.5 * rng.normal(size=60)[people] + 0.7 * rng.normal(size=2400)
    table = {
        "person": people.astype(np.int32),
        "film": films.astype(np.int32),
        "rating": liked.astype(np.float32),
    }

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        taste, style = 0.3 * jax.random.normal(k1, (60, 4)), 0.3 * jax.random.normal(k2, (50, 4))
        return {"taste": taste, "style": style, "mild": jnp.zeros(60), "good": jnp.zeros(50)}

    def predict(params: Any, batch: Any) -> jax.Array:
        person, film = batch["person"], batch["film"]
        beyond = jnp.sum(params["taste"][person] * params["style"][film], 1)
        return params["mild"][person] + params["good"][film] + beyond

    def is_decayed(leaf: jax.Array) -> bool:
        return leaf.ndim < 2 if wrong else leaf.ndim >= 2

    task = Task(
        init=init,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["rating"]) ** 2), {}),
        optimizer=lambda learning_rate: optax.adamw(
            learning_rate, weight_decay=0.5, mask=lambda params: jax.tree.map(is_decayed, params)
        ),
        predict=predict,
        targets=lambda batch: batch["rating"],
        **split_rows(table, np.arange(2400) < 1600, 64),
    )
    return task, config(500, 3e-2)


@planted(
    cause=r"schedule|twice|two (decays|factors)|squared|learning.rate.{0,40}(decay|both|also)",
    sees="the loss stops to fall after a quarter of the run, at a value that is not the noise",
)
def schedule_in_the_optimizer_and_in_the_task(wrong: bool) -> Any:
    """The decay of the learning rate is given to Adam and to the task: each step is multiplied by both."""
    decay = optax.exponential_decay(1.0, 40, 0.4)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (32, 6))
        return {"x": x, "y": jnp.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * jax.random.normal(k2, (32,))}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    task = Task(
        init=lambda key: layers(key, 6, 48, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        optimizer=lambda learning_rate: optax.adam(
            (lambda count: learning_rate * decay(count)) if wrong else learning_rate
        ),
        schedule=decay,
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"accumul|carr(y|ied)|(no effect|ignored|unused|zero gradient|no gradient).{0,60}(rows|examples|part)"
    r"|(part|rows|examples).{0,60}(no effect|not count|unused|ignored|zero|nothing|no gradient)",
    sees="larger batches cost more, and the loss is as noisy as it was",
)
def only_the_last_part_counts(wrong: bool) -> Any:
    """A batch goes through the model in eight parts, to save memory, and the sum of the losses is overwritten by each
    part instead of added to."""

    def each(params: Any, part: Any) -> jax.Array:
        error = forward(params, part["x"])[:, 0] - part["y"]
        return jnp.mean(optax.losses.log_cosh(error))

    def loss(params: Any, batch: Any) -> Any:
        parts = jax.tree.map(lambda leaf: leaf.reshape(8, 4, *leaf.shape[1:]), batch)

        def add(total: jax.Array, part: Any) -> Any:
            value = each(params, part)
            return (8 * value if wrong else total + value), None

        return jax.lax.scan(add, jnp.zeros(()), parts)[0] / 8, {}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (32, 5))
        x = x[jnp.argsort(x[:, 0])]  # alike beside alike, as in a bucket
        return {"x": x, "y": x[:, 0] * x[:, 1] - x[:, 2] + 0.3 * jax.random.normal(k2, (32,))}

    task = Task(
        init=lambda key: layers(key, 5, 48, 1),
        data=data,
        loss=loss,
        predict=lambda params, batch: forward(params, batch["x"])[:, 0],
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"clip",
    sees="the learning rate has to be a hundred times that of others, and then nothing protects from a spike",
)
def clipped_after_adam(wrong: bool) -> Any:
    """The norm is clipped after Adam has scaled the gradient: its updates always have the norm of the square root of
    the number of weights, so every step is cut to a fiftieth."""

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        clip, adam = optax.clip_by_global_norm(1.0), optax.scale_by_adam()
        return optax.chain(
            *((adam, clip) if wrong else (clip, adam)), optax.scale_by_learning_rate(learning_rate)
        )

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 6))
        return {"x": x, "label": (x[:, 0] * x[:, 1] > 0) + 2 * (x[:, 2] > 0)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    task = Task(
        init=lambda key: layers(key, 6, 48, 48, 4),
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        optimizer=optimizer,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=4,
    )
    return task, config(300)


class Scheduled(NamedTuple):
    steps: jax.Array
    adam: Any


def adam_of_a_schedule(schedule: Any, *, rebuilt: bool) -> optax.GradientTransformation:
    def init(params: Any) -> Scheduled:
        return Scheduled(jnp.zeros((), int), optax.adam(schedule(0)).init(params))

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        adam = optax.adam(schedule(state.steps))
        updates, after = adam.update(updates, adam.init(params) if rebuilt else state.adam, params)
        return updates, Scheduled(state.steps + 1, after)

    return optax.GradientTransformation(init, update)


@planted(
    cause=r"moment|optimizer.{0,30}state|state.{0,30}optimizer|restart|re-?init|reset|anew|forget|begins? again|rebuil",
    sees="what is rare and large is not in the predictions, whatever the betas of Adam are",
)
def adam_rebuilt_at_every_step(wrong: bool) -> Any:
    """To change the learning rate, Adam is made anew in every step, and its state too: its moments are those of one
    gradient, and each step is a sign."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (4, 10))
        claims = 40 * jax.random.bernoulli(k2, 0.03 + 0.1 * (x[:, 0] > 1))  # rare, and large
        return {"x": x, "y": 0.3 * x @ jnp.arange(10.0) + claims}

    def predict(params: Any, batch: Any) -> jax.Array:
        return batch["x"] @ params["w"] + params["b"]

    task = Task(
        init=lambda key: {"w": 0.1 * jax.random.normal(key, (10,)), "b": jnp.zeros(())},
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        optimizer=adam_of_a_schedule(optax.cosine_decay_schedule(0.05, 1000, 0.1), rebuilt=wrong),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, lw.train.FitConfig(steps=1000, laps_every=0)


@planted(
    cause=r"uphill|climb|ascen|wrong sign|sign of|minus|opposite|increase.{0,20}loss|away from",
    sees="the predictions are fine, and the error bars grow and grow",
)
def one_group_climbs(wrong: bool) -> Any:
    """The spread of the noise has an optimizer of its own, a chain without the minus sign: it goes uphill."""

    def optimizer(learning_rate: Any) -> optax.GradientTransformation:
        slow = optax.chain(optax.scale_by_adam(), optax.scale(0.005 if wrong else -0.005))
        groups: dict[Hashable, Any] = {"net": optax.adam(learning_rate), "log_spread": slow}
        return optax.multi_transform(groups, {"net": "net", "log_spread": "log_spread"})

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.uniform(k1, (32, 1), minval=-3, maxval=3)
        return {"x": x, "y": jnp.sin(x) + 0.2 * jax.random.normal(k2, x.shape)}

    def loss(params: Any, batch: Any) -> Any:
        error = (forward(params["net"], batch["x"]) - batch["y"]) * jnp.exp(-params["log_spread"])
        return jnp.mean(0.5 * error**2 + params["log_spread"]), {}

    task = Task(
        init=lambda key: {"net": layers(key, 1, 32, 32, 1), "log_spread": jnp.zeros((1,))},
        data=data,
        loss=loss,
        optimizer=optimizer,
        predict=lambda params, batch: forward(params["net"], batch["x"]),
        targets=lambda batch: batch["y"],
    )
    return task, config(400)
