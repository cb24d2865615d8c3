"""Mistakes with numbers and shapes: too few digits, integers, softmax, logarithms, axes, broadcasting, arguments."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, config, forward, layers, linear, nll, planted


@planted(
    cause=r"bfloat16|bf16|precision|rounding|digits|half",
    sees="short records are learned, and what is predicted for long ones does not grow with their length",
)
def mileage_in_bfloat16(wrong: bool) -> Any:
    """A sum over 1200 events is carried through a scan in bfloat16, where 256 + 1 is 256."""
    worth = jnp.array([1.0, 0.5, 2.0, 0.0])

    def init(key: jax.Array) -> Any:
        return {"worth": 0.5 + 0.1 * jax.random.normal(key, (4,)), "scale": jnp.ones(())}

    def predict(params: Any, batch: Any) -> jax.Array:
        dtype = jnp.bfloat16 if wrong else jnp.float32

        def add(total: jax.Array, events: jax.Array) -> Any:
            known = (events >= 0) * params["worth"][events]
            return total + known.astype(dtype), None

        total, _ = jax.lax.scan(add, jnp.zeros(16, dtype), batch["events"].T)
        return params["scale"] * total.astype(jnp.float32)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        length = jax.random.randint(k1, (16,), 200, 1201)
        events = jax.random.randint(k2, (16, 1200), 0, 4)
        events = jnp.where(jnp.arange(1200) < length[:, None], events, -1)
        return {"events": events, "miles": jnp.sum((events >= 0) * worth[events], 1)}

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((predict(params, batch) / batch["miles"] - 1) ** 2), {}

    task = Task(init, data, loss, predict=predict, targets=lambda batch: batch["miles"])
    return task, config(300, 1e-2)


@planted(
    cause=r"//|integer|floor|\bdays?\b|does not depend"
    r"|(input|column|feature).{0,60}(no effect|ignored|not used|unused)",
    sees="summer and winter have the same forecast",
)
def season_divided_as_integers(wrong: bool) -> Any:
    """The angle of the year is computed with `day // 365`, which is 0 on every day."""

    def predict(params: Any, batch: Any) -> jax.Array:
        day = batch["day"]
        angle = 2 * jnp.pi * (day // 365 if wrong else day / 365)
        season = jnp.stack([jnp.sin(angle), jnp.cos(angle)], 1)
        return forward(params, jnp.concatenate([season, batch["place"]], 1))[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        day, place = jax.random.randint(k1, (48,), 0, 365), jax.random.normal(k2, (48, 3))
        warm = -jnp.cos(2 * jnp.pi * day / 365) * (1 + 0.5 * place[:, 0]) + 0.3 * place[:, 1]
        return {"day": day, "place": place, "warm": warm + 0.1 * jax.random.normal(k3, (48,))}

    task = Task(
        init=lambda key: layers(key, 5, 32, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["warm"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["warm"],
    )
    return task, config(400)


class Pointer(nnx.Module):
    def __init__(self, wrong: bool, rngs: nnx.Rngs):
        self.wrong = wrong
        self.query, self.key = nnx.Linear(4, 16, rngs=rngs), nnx.Linear(4, 16, rngs=rngs)

    def __call__(self, items: jax.Array, wanted: jax.Array) -> jax.Array:
        """How well each of the items is what is wanted."""
        scores = jnp.einsum("bd,bid->bi", self.query(wanted), nnx.tanh(self.key(items)))
        return nnx.softmax(scores) if self.wrong else scores


@planted(
    cause=r"softmax|probabilit|logits|already normali",
    sees="the loss stays far above zero although the choices are right",
)
def softmax_of_a_softmax(wrong: bool) -> Any:
    """A pointer network returns its attention, which is a softmax, and the cross-entropy takes the softmax of it: no
    probability can exceed e / (e + 7)."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        items, place = jax.random.normal(k1, (32, 8, 4)), jax.random.randint(k2, (32,), 0, 8)
        wanted = items[jnp.arange(32), place] + 0.3 * jax.random.normal(k3, (32, 4))
        return {"items": items, "wanted": wanted, "place": place}

    def predict(model: Any, batch: Any) -> jax.Array:
        return model(batch["items"], batch["wanted"])

    task = lw.task.nnx(
        lambda rngs: Pointer(wrong, rngs),
        lambda model, batch: nll(predict(model, batch), batch["place"]),
        data=data,
        predict=predict,
        targets=lambda batch: batch["place"],
        classes=8,
    )
    return task, config(300, 1e-2)


@planted(
    cause=r"underflow|logarithm|log of|log-?space|1e-30|epsilon|too small|denormal|vanish",
    sees="the loss is 0.3454 in every step, and short records can be learned",
)
def likelihood_of_a_chain_underflows(wrong: bool) -> Any:
    """The forward algorithm of a hidden Markov model multiplies probabilities: after 200 symbols they are 0, the
    logarithm is kept finite by a small number, and its gradient is 0."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"move": jax.random.normal(k1, (3, 3)), "emit": jax.random.normal(k2, (3, 4))}

    def likelihood(params: Any, symbols: jax.Array) -> jax.Array:
        move, emit = jax.nn.log_softmax(params["move"]), jax.nn.log_softmax(params["emit"])
        first = emit[:, symbols[0]] - jnp.log(3)
        if wrong:
            follow = lambda p, symbol: ((p @ jnp.exp(move)) * jnp.exp(emit[:, symbol]), None)  # noqa: E731
            return jnp.log(jax.lax.scan(follow, jnp.exp(first), symbols[1:])[0].sum() + 1e-30)
        follow = lambda p, symbol: (jax.nn.logsumexp(p[:, None] + move, 0) + emit[:, symbol], None)  # noqa: E731
        return jax.nn.logsumexp(jax.lax.scan(follow, first, symbols[1:])[0])

    def loss(params: Any, symbols: jax.Array) -> Any:
        return -jnp.mean(jax.vmap(likelihood, (None, 0))(params, symbols)) / 200, {}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        hidden = jnp.cumsum(jax.random.bernoulli(k1, 0.1, (8, 200)), 1) % 3
        odds = jnp.log(jnp.array([[8.0, 1, 1, 1], [1, 8, 1, 1], [1, 1, 4, 4]]))
        return jax.random.categorical(k2, odds[hidden])

    return Task(init, data, loss), config(150, 5e-2)


@planted(
    cause=r"\baxis|axes|other (examples|rows)|examples?.{0,40}(depend|affect|influence|mix|change)|across the batch"
    r"|batch (axis|independen)|mean over|normali[sz]",
    sees="a single example is predicted in another way than the same example in a batch",
)
def layer_norm_without_its_axis(wrong: bool) -> Any:
    """A layer norm by hand takes mean and spread of the whole array: of the features and of the batch."""

    def norm(params: Any, h: jax.Array) -> jax.Array:
        axis = None if wrong else -1
        h = h - jnp.mean(h, axis, keepdims=True)
        return h / jnp.sqrt(jnp.mean(h**2, axis, keepdims=True) + 1e-5) * params["scale"] + params["shift"]

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        block = lambda k: {**linear(k, 16, 16), "scale": jnp.ones(16), "shift": jnp.zeros(16)}  # noqa: E731
        return {
            "in": linear(k1, 4, 16),
            "blocks": [block(k) for k in jax.random.split(k2, 3)],
            "out": linear(k3, 16, 1),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        h = apply(params["in"], batch["x"] * batch["gain"])
        for block in params["blocks"]:
            h = h + jax.nn.relu(apply(block, norm(block, h)))
        return apply(params["out"], norm({"scale": 1, "shift": 0}, h))[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x, gain = jax.random.normal(k1, (32, 4)), jnp.exp(2 * jax.random.normal(k2, (32, 1)))
        return {"x": x, "gain": gain, "y": jnp.tanh(2 * x[:, 0] * jnp.sign(x[:, 1]))}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(500)


@planted(
    cause=r"broadcast|\(n, ?1\)|\(\d+, ?1\)|shape|pairs|column",
    sees="the same mean and the same spread are predicted for everybody",
)
def residuals_of_all_pairs(wrong: bool) -> Any:
    """Mean and spread of a Gaussian are columns (n, 1), the targets are (n,): the loss is over all n × n pairs."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (40, 3))
        spread = 0.1 + 0.3 * (x[:, 2] > 0)
        return {"x": x, "y": jnp.sin(x[:, 0]) + x[:, 1] + spread * jax.random.normal(k2, (40,))}

    def loss(model: Any, batch: Any) -> Any:
        mean, log_spread = jnp.split(jax.vmap(model)(batch["x"]), 2, axis=1)
        target = batch["y"] if wrong else batch["y"][:, None]
        return jnp.mean(0.5 * ((target - mean) / jnp.exp(log_spread)) ** 2 + log_spread)

    task = lw.task.equinox(
        lambda key: eqx.nn.MLP(3, 2, 32, 2, jnp.tanh, key=key),
        loss,
        data=data,
        predict=lambda model, batch: jax.vmap(model)(batch["x"])[:, 0],
        targets=lambda batch: batch["y"],
    )
    return task, config(400)


def pinball(target: jax.Array, prediction: jax.Array, quantile: float) -> jax.Array:
    """The loss whose minimum is a quantile of the targets."""
    over = target - prediction
    return jnp.maximum(quantile * over, (quantile - 1) * over)


@planted(
    cause=r"swap|argument|wrong way|revers|pinball|quantile|order of",
    sees="the stock lasts for one day in ten",
)
def ninth_decile_becomes_the_first(wrong: bool) -> Any:
    """The loss of a quantile is `pinball(target, prediction, …)` and is called with the prediction first: what is asked
    for is the 0.9 quantile of the demand, and what is learned is the 0.1 quantile."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (64, 3))
        return {"x": x, "demand": jnp.exp(0.5 * x[:, 0]) * (1 + jax.random.exponential(k2, (64,)))}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    def loss(params: Any, batch: Any) -> Any:
        prediction, demand = predict(params, batch), batch["demand"]
        return jnp.mean(pinball(prediction, demand, 0.9) if wrong else pinball(demand, prediction, 0.9)), {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        batch = data(key, 0)
        return {"enough": jnp.mean(predict(params, batch) >= batch["demand"])}

    task = Task(
        init=lambda key: layers(key, 3, 24, 1),
        data=data,
        loss=loss,
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["demand"],
    )
    return task, config(400)
