"""Leaks: of targets, of the validation, of the future, of other examples."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw
from lapwing.task import Arrays, Task

from .._parts import apply, config, forward, gru, layers, linear, nll, planted, run_gru, split_rows


@planted(
    cause=r"leak|target.{0,80}(input|column|feature)|(input|column|feature|town).{0,80}target|encod",
    sees="the error in the validation is half of what anybody else reaches, and in use it is worse than without towns",
)
def town_encoded_by_its_prices(wrong: bool) -> Any:
    """A town is given as the mean price of its houses, and those are the houses of the table, validation included: the
    price that is asked for is half of its own input."""
    rng = np.random.default_rng(1)
    worth = 0.3 * rng.normal(size=400)

    def sales(count: int) -> Any:
        town, x = rng.integers(0, 400, count), rng.normal(size=(count, 4))
        price = x @ [0.8, -0.5, 0.3, 0] + worth[town] + rng.normal(size=count)
        return town, x, price

    town, x, price = sales(800)
    known, _, paid = (town, x, price) if wrong else sales(800)
    mean = np.bincount(known, paid, 400) / np.maximum(np.bincount(known, minlength=400), 1)
    table = {"x": np.column_stack([x, mean[town]]).astype(np.float32), "price": price.astype(np.float32)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    task = Task(
        init=lambda key: layers(key, 5, 16, 1),
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["price"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["price"],
        **split_rows(table, np.arange(800) < 640),
    )
    return task, config(300)


@planted(
    cause=r"statistic|standardi|normali[sz]|scaled|zero mean|mean (is )?(of )?0|unit variance|centred|centered",
    sees="the validation is bad, and the same weights are right in use, where all is scaled as in the training",
)
def validation_scaled_by_itself(wrong: bool) -> Any:
    """The measurements of the next year are standardised by their own mean and spread instead of those of the training:
    the level, which decides, is gone from them."""
    rng = np.random.default_rng(2)
    old, new = rng.normal(size=(640, 4)), rng.normal(size=(192, 4)) * 1.5 + [1.5, 0, -0.8, 0]
    alarm = lambda x: (x @ [1.5, 0.4, -0.9, 0.2] > 0.5).astype(np.int32)  # noqa: E731
    by = new if wrong else old
    train = {"x": ((old - old.mean(0)) / old.std(0)).astype(np.float32), "alarm": alarm(old)}
    later = {"x": ((new - by.mean(0)) / by.std(0)).astype(np.float32), "alarm": alarm(new)}

    def init(key: jax.Array) -> Any:
        return eqx.filter(eqx.nn.MLP(4, 2, 16, 1, key=key), eqx.is_inexact_array)

    def predict(params: Any, batch: Any) -> jax.Array:
        static = eqx.filter(eqx.nn.MLP(4, 2, 16, 1, key=jax.random.key(0)), eqx.is_array, inverse=True)
        return jax.vmap(eqx.combine(params, static))(batch["x"])

    task = Task(
        init=init,
        data=Arrays(train, 32),
        validation=Arrays(later, 32),
        loss=lambda params, batch: (nll(predict(params, batch), batch["alarm"]), {}),
        predict=predict,
        targets=lambda batch: batch["alarm"],
        classes=2,
    )
    return task, config(300)


@planted(
    cause=r"future|causal|later (times|steps|inputs|values)|ahead|leak|over time|time axis|normali[sz]",
    sees="the error of the forecast is much smaller in the test than in use, where the end of the series is not known",
)
def series_scaled_by_its_whole_life(wrong: bool) -> Any:
    """A forecaster divides a series by its largest value, and that may come after the time of the forecast."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        trend = 0.3 * jax.random.normal(k1, (32, 1, 1))
        series = jnp.exp(jnp.cumsum(trend + 0.3 * jax.random.normal(k2, (32, 17, 1)), 1))
        return {"past": series[:, :-1], "grows": (series[:, 1:] / series[:, :-1])[..., 0]}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 1, 16), "out": linear(k2, 16, 1)}

    def predict(params: Any, batch: Any) -> jax.Array:
        past = batch["past"]
        largest = jnp.max(past, 1, keepdims=True) if wrong else jax.lax.cummax(past, 1)
        return apply(params["out"], run_gru(params["gru"], past / largest))[..., 0]

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((predict(params, batch) - jnp.log(batch["grows"])) ** 2), {}

    task = Task(
        init,
        data,
        loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["grows"],
    )
    return task, config(300)


class Sensors(eqx.Module):
    embed: jax.Array
    attend: eqx.nn.MultiheadAttention
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        k1, k2, k3 = jax.random.split(key, 3)
        self.embed = jax.random.normal(k1, (6, 2, 8))
        self.attend = eqx.nn.MultiheadAttention(2, 8, key=k2)
        self.out = eqx.nn.Linear(48, 3, key=k3)

    def __call__(self, x: jax.Array, axis: int) -> jax.Array:
        h = x[..., None] * self.embed[:, 0] + self.embed[:, 1]
        attend = jax.vmap(lambda h: self.attend(h, h, h), in_axes=axis, out_axes=axis)
        return jax.vmap(self.out)((h + attend(h)).reshape(len(x), -1))


@planted(
    cause=r"other (examples|rows)|examples?.{0,40}(depend|mix|affect|influence|change)|vmap|across the batch"
    r"|batch (axis|dimension|independen)|mix",
    sees="it is good in batches as in the training, and bad for a single machine",
)
def sensors_attend_to_other_machines(wrong: bool) -> Any:
    """Attention should be between the six sensors of a machine, but vmap maps over the sensors, so it is between the
    machines of the batch."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (32, 6))
        fault = jnp.argmax(jnp.stack([x[:, 0] * x[:, 1], x[:, 2] * x[:, 3], x[:, 4] * x[:, 5]], 1), 1)
        return {"x": x + 0.1 * jax.random.normal(k2, x.shape), "fault": fault}

    def predict(model: Any, batch: Any) -> jax.Array:
        return model(batch["x"], 1 if wrong else 0)

    task = lw.task.equinox(
        Sensors,
        lambda model, batch: nll(predict(model, batch), batch["fault"]),
        data=data,
        predict=predict,
        targets=lambda batch: batch["fault"],
        classes=3,
    )
    return task, config(500)


@planted(
    cause=r"duplicate|near-?identical|almost (the same|equal)|both (in|sides)|leak|same (rows|examples|patient)"
    r"|overlap|copies|also in|nearest",
    sees="the validation is nearly perfect, and the next hospital finds the model at chance",
)
def patients_on_both_sides_of_the_split(wrong: bool) -> Any:
    """Each patient was recorded eight times, and the split is by recording: the validation has the patients of the
    training, whose diagnosis can be learned by heart."""
    rng = np.random.default_rng(3)
    person = np.repeat(np.arange(96), 8)
    traits = rng.normal(size=(96, 10))
    ill = (0.7 * traits[:, 0] + rng.normal(size=96) > 0).astype(np.int32)
    x = traits[person] + 0.02 * rng.normal(size=(768, 10))
    table = {"x": x.astype(np.float32), "ill": ill[person]}
    train = rng.permutation(768) < 576 if wrong else rng.permutation(96)[person] < 72

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    def evaluate(params: Any, batch: Any) -> Any:
        logits = predict(params, batch)
        return {"loss": nll(logits, batch["ill"]), "right": jnp.mean(logits.argmax(1) == batch["ill"])}

    task = Task(
        init=lambda key: layers(key, 10, 64, 64, 2),
        loss=lambda params, batch: (nll(predict(params, batch), batch["ill"]), {}),
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["ill"],
        classes=2,
        **split_rows(table, train),
    )
    return task, config(300)
