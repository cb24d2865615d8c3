"""Mistakes in the data: pairs, order, splits, windows, types, indices."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import lapwing as lw
from lapwing.task import Arrays, Task

from .._parts import apply, blobs, config, forward, gru, layers, linear, nll, planted, run_gru


class Reader(eqx.Module):
    embed: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k1, k2, k3 = jax.random.split(key, 3)
        self.embed = eqx.nn.Embedding(12, 8, key=k1)
        self.cell = eqx.nn.GRUCell(8, 16, key=k2)
        self.head = eqx.nn.Linear(16, 3, key=k3)

    def states(self, tokens: jax.Array) -> jax.Array:
        def step(h: jax.Array, x: jax.Array) -> Any:
            h = self.cell(x, h)
            return h, h

        return jax.lax.scan(step, jnp.zeros(16), jax.vmap(self.embed)(tokens))[1]


@planted(
    cause=r"padding|padded|length|mask",
    sees="texts much shorter than the longest are classified worse, and the same text in another batch differently",
)
def gru_state_after_the_padding(wrong: bool) -> Any:
    """The classifier reads the state of the GRU at the last position, which is padding in most texts."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        length = jax.random.randint(k1, (32,), 2, 20)
        tokens = jax.random.randint(k2, (32, 20), 1, 12) * (jnp.arange(20) < length[:, None])
        return {"tokens": tokens, "length": length, "label": tokens.sum(1) // length // 4}

    def predict(model: Reader, batch: Any) -> jax.Array:
        hs = jax.vmap(model.states)(batch["tokens"])
        last = hs[:, -1] if wrong else hs[jnp.arange(hs.shape[0]), batch["length"] - 1]
        return jax.vmap(model.head)(last)

    def loss(model: Reader, batch: Any) -> Any:
        return nll(predict(model, batch), batch["label"])

    task = lw.task.equinox(
        Reader, loss, data=data, predict=predict, targets=lambda batch: batch["label"], classes=3
    )
    return task, config(400, 1e-2)


def _houses(count: int = 512) -> Any:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    price = np.abs(x[:, 0]) + 0.7 * x[:, 1] - 0.5 * x[:, 2] * x[:, 3]
    return x, (price + 0.1 * rng.normal(size=count)).astype(np.float32)


@planted(
    cause=r"pair|shuffl|order|torn|unrelated|ignores? (its|the) inputs|nothing to do|permut",
    sees="the loss never falls below the variance of the prices",
)
def columns_shuffled_apart(wrong: bool) -> Any:
    """Features and prices are each shuffled with a permutation of their own."""
    x, price = _houses()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    x, price = x[order], price[rng.permutation(len(x)) if wrong else order]

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    task = Task(
        init=lambda key: layers(key, 6, 32, 1),
        data=Arrays({"x": x, "price": price}, batch_size=32),
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["price"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["price"],
    )
    return task, config()


@planted(
    cause=r"shuffl|sorted|order|one class|same (label|class|target)|single class",
    sees="the loss is a sawtooth: low within a batch, high whenever the class changes",
)
def table_sorted_by_class(wrong: bool) -> Any:
    """The file is sorted by class and is not shuffled, so that a batch has one class."""
    table = jax.tree.map(np.asarray, blobs(jax.random.key(4), 384))
    table = {name: column[np.argsort(table["label"], kind="stable")] for name, column in table.items()}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    task = Task(
        init=lambda key: layers(key, 5, 16, 3),
        data=Arrays(table, batch_size=32, shuffle=not wrong),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(200, 2e-2)


@planted(
    cause=r"duplicate|both|overlap|leak|validation.*(contain|same|also|train)|same (rows|examples)",
    sees="the accuracy in validation is far above that on new data",
)
def oversampled_before_the_split(wrong: bool) -> Any:
    """The rare class is repeated before rows are drawn for validation, so copies of one row are on both sides."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(240, 8)).astype(np.float32)
    label = (x[:, 0] + rng.normal(size=240) > 1.3).astype(np.int32)

    def repeated(rows: np.ndarray) -> np.ndarray:
        return np.concatenate([rows, np.repeat(rows[label[rows] == 1], 3)])

    rows = repeated(np.arange(240)) if wrong else np.arange(240)
    rows = rng.permutation(rows)
    cut = len(rows) // 4
    held_out, train = rows[:cut], rows[cut:] if wrong else repeated(rows[cut:])

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    def loss(params: Any, batch: Any) -> Any:
        logits = predict(params, batch)
        return nll(logits, batch["label"]), {"accuracy": jnp.mean(logits.argmax(-1) == batch["label"])}

    task = Task(
        init=lambda key: layers(key, 8, 64, 2),
        data=Arrays({"x": x[train], "label": label[train]}, batch_size=32),
        validation=Arrays({"x": x[held_out], "label": label[held_out]}, batch_size=20),
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=2,
    )
    return task, config()


@planted(
    cause=r"leak|contain|copy|copies|equal|already|in the inputs?|is an input|read off",
    sees="a forecast that is nearly perfect from the first minute, and useless in production",
)
def window_ends_on_its_target(wrong: bool) -> Any:
    """The value to be forecast is the last one of the window that the model sees."""
    rng = np.random.default_rng(5)
    series = np.zeros(2000, np.float32)
    for t in range(2, 2000):
        series[t] = 1.5 * series[t - 1] - 0.8 * series[t - 2] + rng.normal()
    series /= series.std()

    def data(key: jax.Array, step: Any) -> Any:
        start = jax.random.randint(key, (64,), 0, len(series) - 13)
        windows = jnp.asarray(series)[start[:, None] + jnp.arange(13)]
        return {"window": windows[:, :12], "next": windows[:, 11] if wrong else windows[:, 12]}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["window"])[:, 0]

    task = Task(
        init=lambda key: layers(key, 12, 32, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["next"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["next"],
    )
    return task, config()


@planted(
    cause=r"shift|roll|previous|already|copy|copies|leak|before",
    sees="a perplexity of almost 1 after a few hundred steps, and generated text that repeats itself",
)
def targets_rolled_forwards(wrong: bool) -> Any:
    """`roll(tokens, 1)` is the token before; the next one is `roll(tokens, -1)`."""
    counts = jnp.arange(10) < 9  # What is rolled around does not count.

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        start = jax.random.randint(k1, (24, 1), 0, 9)
        tokens = (start + jax.random.randint(k2, (24, 1), 1, 4) * jnp.arange(10)) % 9
        return {"tokens": tokens, "targets": jnp.roll(tokens, 1 if wrong else -1, axis=1)}

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"embed": jax.random.normal(k1, (9, 8)), "gru": gru(k2, 8, 24), "out": linear(k3, 24, 9)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params["out"], run_gru(params["gru"], params["embed"][batch["tokens"]]))

    def loss(params: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(predict(params, batch), batch["targets"])
        return jnp.sum(each * counts) / (9 * len(each)), {}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=9,
    )
    return task, config(300, 1e-2)


class SmallCNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(8 * 16, 3, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        h = nnx.relu(self.conv(x))
        return self.out(h.reshape(len(h), -1))


@planted(
    cause=r"integer|division|rounded|divided|constant|all zero|no effect|ignores? (its|the) inputs",
    sees="the network learns how frequent the classes are, and nothing else",
)
def bytes_divided_as_integers(wrong: bool) -> Any:
    """Images of bytes are divided by 255 with `//`: all pixels are 0."""
    rng = np.random.default_rng(6)
    label = rng.integers(0, 3, 480).astype(np.int32)
    pattern = rng.integers(20, 200, (3, 8, 8, 1))
    image = np.clip(pattern[label] + rng.normal(0, 25, (480, 8, 8, 1)), 0, 250).astype(np.uint8)

    def predict(model: SmallCNN, batch: Any) -> jax.Array:
        pixels = batch["image"] // 255 if wrong else batch["image"] / 255
        return model(pixels.astype(jnp.float32))

    task = lw.task.nnx(
        SmallCNN,
        lambda model, batch: nll(predict(model, batch), batch["label"]),
        data=Arrays({"image": image, "label": label}, batch_size=32),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(150, 3e-3)


@planted(
    cause=r"out of (range|bounds)|clamp|vocabular|index|indices|rows",
    sees="the validation loss stays above that of the older tokenizer, though nothing else has changed",
)
def tokens_beyond_the_table(wrong: bool) -> Any:
    """The tokenizer has 40 tokens, the table 24 rows: jax reads the last row for all tokens above."""

    def data(key: jax.Array, step: Any) -> Any:
        tokens = jax.random.randint(key, (32, 6), 0, 40)
        worth = jnp.sin(1.7 * jnp.arange(40))
        return {"tokens": tokens, "score": worth[tokens].sum(1)}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        table = 0.3 * jax.random.normal(k1, (24 if wrong else 40, 8))
        return {"table": table, "net": layers(k2, 8, 16, 1)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params["net"], params["table"][batch["tokens"]].sum(1))[:, 0]

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["score"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["score"],
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"out of range|one.?hot|labels? (from|start|begin)|never|class|no target|all zero",
    sees="one species is never predicted, and the loss looks better than it is",
)
def classes_counted_from_one(wrong: bool) -> Any:
    """The file counts species from 1; `one_hot` gives a row of zeros for the last of them."""

    def data(key: jax.Array, step: Any) -> Any:
        batch = blobs(key)
        return {"x": batch["x"], "species": batch["label"] + 1}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    def loss(params: Any, batch: Any) -> Any:
        goal = jax.nn.one_hot(batch["species"] if wrong else batch["species"] - 1, 3)
        return optax.softmax_cross_entropy(predict(params, batch), goal).mean(), {}

    task = Task(
        init=lambda key: layers(key, 5, 16, 3),
        data=data,
        loss=loss,
        predict=predict,
        targets=lambda batch: batch["species"] - (0 if wrong else 1),
        classes=3,
    )
    return task, config()
