"""Mistakes in the structure: axes, state that is kept or lost, parameters that are none."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, config, gru, gru_step, layers, linear, nll, planted
from .._parts import forward as mlp


@planted(
    cause=r"reshape|transpos|\baxis|axes|other (examples|rows)|examples?.{0,40}(depend|affect|influence|mix|change)"
    r"|across the batch|batch (axis|independen)|future|causal",
    sees="the loss falls to that of a model without a memory",
)
def time_first_by_reshape(wrong: bool) -> Any:
    """A scan needs time first, and `reshape(time, batch, …)` is not a transpose: a "sequence" is a few steps of each of
    many examples."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 2, 24), "out": linear(k2, 24, 2)}

    def predict(params: Any, batch: Any) -> jax.Array:
        xs = batch["x"]
        n, time, width = xs.shape
        xs = xs.reshape(time, n, width) if wrong else xs.transpose(1, 0, 2)

        def step(h: jax.Array, x: jax.Array) -> Any:
            h = gru_step(params["gru"], h, x)
            return h, h

        _, hs = jax.lax.scan(step, jnp.zeros((n, 24)), xs)
        hs = hs.reshape(n, time, 24) if wrong else hs.transpose(1, 0, 2)
        return apply(params["out"], hs)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        force = jax.random.normal(k1, (24, 20, 2))
        speed = jnp.cumsum(force, 1) / 4
        return {"x": force + 0.1 * jax.random.normal(k2, force.shape), "speed": speed}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["speed"]) ** 2), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["speed"],
    )
    return task, config(400)


@planted(
    cause=r"reset|episode|\bdone\b|begins?.{0,60}(state|memory)|(state|memory).{0,60}(carried|kept|survive|leak|over)",
    sees="the policy is good in the first episode after a start, and worse in all later ones",
)
def memory_that_survives_the_episode(wrong: bool) -> Any:
    """Rollouts hold several episodes, and the memory of the agent is not set to zero where one ends: it adds up what
    belongs to another one."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 3, 24), "out": layers(k2, 24, 16, 5)}

    def predict(params: Any, batch: Any) -> jax.Array:
        def step(h: jax.Array, given: Any) -> Any:
            seen, first = given
            h = gru_step(params["gru"], h if wrong else jnp.where(first[:, None], 0, h), seen)
            return h, h

        given = jax.nn.one_hot(batch["card"], 3).swapaxes(0, 1), batch["first"].T
        _, hs = jax.lax.scan(step, jnp.zeros((32, 24)), given)
        return mlp(params["out"], hs.swapaxes(0, 1))

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        first = jax.random.bernoulli(k1, 0.2, (32, 20)).at[:, 0].set(True)
        card = jax.random.randint(k2, (32, 20), 0, 3)

        def add(total: jax.Array, now: Any) -> Any:
            total = jnp.where(now[1], 0, total) + now[0]
            return total, jnp.minimum(total, 4)

        _, action = jax.lax.scan(add, jnp.zeros(32, int), (card.T, first.T))
        return {"card": card, "first": first, "action": action.T}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["action"]), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["action"],
        classes=5,
    )
    return task, config(500)


class Pulse(nnx.Module):
    def __init__(self, wrong: bool, rngs: nnx.Rngs):
        self.wrong, self.cell = wrong, nnx.SimpleCell(2, 24, rngs=rngs)
        self.out = nnx.Linear(24, 2, rngs=rngs)

    def __call__(self, xs: jax.Array) -> jax.Array:
        begin = jnp.zeros((xs.shape[0], 24))

        def step(h: jax.Array, x: jax.Array) -> Any:
            return self.cell(begin if self.wrong else h, x)

        return self.out(jax.lax.scan(step, begin, xs.swapaxes(0, 1))[1].swapaxes(0, 1))


@planted(
    cause=r"carr(y|ied)|recurren|hidden|the past|earlier|history|memory|does not depend on|cell",
    sees="a network without a recurrence is as good",
)
def every_step_begins_from_zero(wrong: bool) -> Any:
    """The body of the scan gives the cell the state of the beginning, not that of the step before: nothing is
    remembered."""

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 12, 2))
        last = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1, 0]
        return {"x": x, "beat": (last * x[:, :, 1] > 0).astype(int)}

    task = lw.task.nnx(
        lambda rngs: Pulse(wrong, rngs),
        lambda model, batch: nll(model(batch["x"]), batch["beat"]),
        data=data,
        predict=lambda model, batch: model(batch["x"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["beat"],
        classes=2,
    )
    return task, config(400, 1e-2)


class Places(nnx.Module):
    def __init__(self, wrong: bool, rngs: nnx.Rngs):
        first = 0.02 * jax.random.normal(rngs.params(), (9, 16))
        self.place = nnx.Variable(first) if wrong else nnx.Param(first)
        self.embed = nnx.Embed(6, 16, rngs=rngs)
        self.attend = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.hidden, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 6, rngs=rngs)

    def __call__(self, words: jax.Array) -> jax.Array:
        h = self.embed(words) + self.place[...]
        h = h + self.attend(h)
        return self.out(nnx.relu(self.hidden(h)))


@planted(
    cause=r"Variable|not? (a )?param|not trained|never (train|chang|updat|mov)|frozen|\bplace\b|constant state",
    sees="the transformer confuses the order of the words, and learns it late or never",
)
def places_that_are_no_parameters(wrong: bool) -> Any:
    """The embedding of the places is an `nnx.Variable` and no `nnx.Param`: it stays the small noise that it was
    initialised with."""

    def data(key: jax.Array, step: Any) -> Any:
        words = jax.random.randint(key, (48, 9), 0, 6)
        return {"words": words, "reversed": words[:, ::-1]}

    task = lw.task.nnx(
        lambda rngs: Places(wrong, rngs),
        lambda model, batch: nll(model(batch["words"]), batch["reversed"]),
        data=data,
        predict=lambda model, batch: model(batch["words"]),
        targets=lambda batch: batch["reversed"],
        classes=6,
    )
    return task, config(500, 5e-3)
