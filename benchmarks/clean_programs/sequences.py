"""Correct programs: recurrent networks, transformers, dynamics, and learning from rewards."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.silent_bugs._parts import (
    TIME,
    VOCABULARY,
    WIDTH,
    apply,
    attend,
    cross_entropy,
    dense,
    language_model,
    logits_of,
    mlp,
    next_tokens,
    only,
    run_mlp,
    text,
)
from lapwing.bench.doctor import clean
from lapwing.task import Task


def _waves(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    """Noisy inputs and their running mean."""
    x = jax.random.normal(key, (16, 12, 2))
    return {"x": x, "y": jnp.cumsum(x[..., 0], 1) / jnp.arange(1, 13)}


def _recurrent(cell: Any, start: Any, init: Any) -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        def step(h: Any, x: jax.Array) -> Any:
            h = cell(params["cell"], h, x)
            return h, h[0] if isinstance(h, tuple) else h

        _, states = jax.lax.scan(step, start(len(batch["x"])), jnp.swapaxes(batch["x"], 0, 1))
        return apply(params["out"], jnp.swapaxes(states, 0, 1))[..., 0]

    def both(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"cell": init(k1), "out": dense(k2, 8, 1)}

    return Task(
        init=both,
        data=_waves,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["y"],
    )


@clean
def recurrent_network() -> Task:
    return _recurrent(
        lambda p, h, x: jnp.tanh(apply(p, jnp.concatenate([h, x], -1))),
        lambda count: jnp.zeros((count, 8)),
        lambda key: dense(key, 10, 8),
    )


@clean
def gated_recurrent_network() -> Task:
    def cell(p: Any, h: jax.Array, x: jax.Array) -> jax.Array:
        reset, keep = jnp.split(jax.nn.sigmoid(apply(p["gates"], jnp.concatenate([h, x], -1))), 2, axis=-1)
        new = jnp.tanh(apply(p["new"], jnp.concatenate([reset * h, x], -1)))
        return keep * h + (1 - keep) * new

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gates": dense(k1, 10, 16), "new": dense(k2, 10, 8)}

    return _recurrent(cell, lambda count: jnp.zeros((count, 8)), init)


@clean(held_out=True)
def long_short_term_memory() -> Task:
    def cell(p: Any, state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(apply(p, jnp.concatenate([h, x], -1)), 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    return _recurrent(
        cell, lambda count: (jnp.zeros((count, 8)), jnp.zeros((count, 8))), lambda key: dense(key, 10, 32)
    )


@clean
def language_model_of_tokens() -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        return logits_of(params, batch["inputs"])

    return Task(
        init=language_model,
        data=next_tokens,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["targets"]), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY,
    )


@clean
def language_model_of_whole_texts() -> Task:
    """The batch has the tokens only; the loss shifts them."""

    def loss(params: Any, batch: Any) -> Any:
        logits = logits_of(params, batch["tokens"][:, :-1])
        return cross_entropy(logits, batch["tokens"][:, 1:]), {}

    return Task(init=language_model, data=lambda key, step: {"tokens": text(key, time=TIME + 1)}, loss=loss)


@clean(held_out=True)
def language_model_with_padding() -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        tokens = text(k1, time=TIME + 1)
        tokens = jnp.where(jnp.arange(TIME + 1) < jax.random.randint(k2, (16, 1), 4, TIME + 2), tokens, 0)
        return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}

    def loss(params: Any, batch: Any) -> Any:
        counts = batch["targets"] != 0
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits_of(params, batch["inputs"]), batch["targets"]
        )
        return jnp.sum(each * counts) / jnp.sum(counts), {}

    return Task(
        init=language_model,
        data=data,
        loss=loss,
        predict=lambda params, batch: logits_of(params, batch["inputs"]),
        time_axis=1,
        output_time_axis=1,
    )


@clean
def masked_language_model() -> Task:
    """Sees both sides; 0 hides a token, and only hidden ones count."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        tokens = text(k1)
        hidden = jax.random.bernoulli(k2, 0.3, tokens.shape).at[:, 0].set(True)
        return {"inputs": jnp.where(hidden, 0, tokens), "targets": tokens, "hidden": hidden}

    def predict(params: Any, batch: Any) -> jax.Array:
        return logits_of(params, batch["inputs"], jnp.ones((TIME, TIME), bool))

    def loss(params: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(predict(params, batch), batch["targets"])
        return jnp.sum(each * batch["hidden"]) / jnp.sum(batch["hidden"]), {}

    return Task(init=language_model, data=data, loss=loss, predict=predict)


@clean
def sequence_to_sequence() -> Task:
    """Reverses a text: a decoder with teacher forcing reads a code of the input."""

    def data(key: jax.Array, step: Any) -> Any:
        source = text(key)
        target = source[:, ::-1]
        before = jnp.concatenate([jnp.zeros((16, 1), target.dtype), target[:, :-1]], axis=1)
        return {"source": source, "before": before, "target": target}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        reader = {
            name: leaf for name, leaf in language_model(k1).items() if name in ("embed", "place", "qkv")
        }
        return {"reader": reader, "writer": language_model(k2)}

    def predict(params: Any, batch: Any) -> jax.Array:
        reader, writer = params["reader"], params["writer"]
        x = reader["embed"][batch["source"]] + reader["place"]
        code = attend(reader, x, jnp.ones((TIME, TIME), bool))[:, ::-1]
        y = writer["embed"][batch["before"]] + writer["place"] + code
        y = y + attend(writer, y, jnp.tril(jnp.ones((TIME, TIME), bool)))
        y = y + apply(writer["back"], jax.nn.gelu(apply(writer["hidden"], y)))
        return apply(writer["out"], y)

    return Task(
        init=init,
        data=data,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["target"]), {}),
        predict=predict,
        targets=lambda batch: batch["target"],
        classes=VOCABULARY,
    )


@clean
def neural_differential_equation() -> Task:
    def path(params: Any, start: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> Any:
            x = x + 0.1 * run_mlp(params, x)
            return x, x

        return jax.lax.scan(step, start, length=15)[1]

    def data(key: jax.Array, step: Any) -> Any:
        start = jax.random.normal(key, (16, 2))
        turn = jnp.array([[0.995, 0.0998], [-0.0998, 0.995]])
        _, points = jax.lax.scan(lambda x, _: (x @ turn, x @ turn), start, length=15)
        return {"start": start, "points": points}

    return Task(
        init=lambda key: mlp(key, 2, 16, 2),
        data=data,
        loss=lambda params, batch: (jnp.mean((path(params, batch["start"]) - batch["points"]) ** 2), {}),
        batch_axis={"start": 0, "points": 1},
    )


@clean
def state_space_likelihood() -> Task:
    """A Kalman filter of one dimension; its parameters are trained by maximum likelihood."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jnp.cumsum(0.3 * jax.random.normal(k1, (16, 20)), axis=1)
        return {"y": x + 0.5 * jax.random.normal(k2, (16, 20))}

    def negative_log_likelihood(params: Any, ys: jax.Array) -> jax.Array:
        drift, noise = jnp.exp(params["log_drift"]), jnp.exp(params["log_noise"])

        def step(state: Any, y: jax.Array) -> Any:
            mean, variance = state
            variance = variance + drift
            total = variance + noise
            error, gain = y - mean, variance / total
            score = 0.5 * (error**2 / total + jnp.log(2 * jnp.pi * total))
            return (mean + gain * error, (1 - gain) * variance), score

        return jnp.mean(jax.lax.scan(step, (jnp.zeros(()), jnp.ones(())), ys)[1])

    return Task(
        init=lambda key: {"log_drift": jnp.float32(0.0), "log_noise": jnp.float32(0.5)},
        data=data,
        loss=lambda params, batch: (
            jnp.mean(jax.vmap(negative_log_likelihood, (None, 0))(params, batch["y"])),
            {},
        ),
    )


def _bandit(key: jax.Array, policy: Any) -> dict[str, jax.Array]:
    k1, k2 = jax.random.split(key)
    state = jax.random.normal(k1, (64, 4))
    action = jax.random.categorical(k2, policy(state))
    return {"state": state, "action": action, "reward": jnp.where(action == (state[:, 0] > 0), 1.0, 0.0)}


@clean(held_out=True)
def policy_gradient() -> Task:
    """REINFORCE with a baseline: the batch is drawn with the present policy, in `prepare`."""

    def play(params: Any, batch: Any, key: jax.Array) -> Any:
        return _bandit(key, lambda state: run_mlp(params, state))

    def loss(params: Any, batch: Any) -> Any:
        scores = jax.nn.log_softmax(run_mlp(params, batch["state"]))
        chosen = jnp.take_along_axis(scores, batch["action"][:, None], axis=1)[:, 0]
        advantage = batch["reward"] - jnp.mean(batch["reward"])
        return -jnp.mean(chosen * advantage), {"reward": jnp.mean(batch["reward"])}

    return Task(
        init=lambda key: mlp(key, 4, 16, 2),
        data=lambda key, step: {"draw": jax.random.normal(key, (64,))},
        prepare=play,
        loss=loss,
        expected_findings={
            "can_learn": "the loss of a policy gradient does not fall when the policy improves"
        },
    )


@clean
def actor_and_critic() -> Task:
    def data(key: jax.Array, step: Any) -> Any:
        return _bandit(key, lambda state: jnp.zeros((64, 2)))

    def loss(params: Any, batch: Any) -> Any:
        value = run_mlp(params["critic"], batch["state"])[:, 0]
        scores = jax.nn.log_softmax(run_mlp(params["actor"], batch["state"]))
        chosen = jnp.take_along_axis(scores, batch["action"][:, None], axis=1)[:, 0]
        advantage = jax.lax.stop_gradient(batch["reward"] - value)
        entropy = -jnp.mean(jnp.sum(jnp.exp(scores) * scores, axis=-1))
        return jnp.mean((value - batch["reward"]) ** 2) - jnp.mean(chosen * advantage) - 0.01 * entropy, {}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"actor": mlp(k1, 4, 16, 2), "critic": mlp(k2, 4, 16, 1)}

    return Task(init=init, data=data, loss=loss)


@clean
def value_iteration_with_a_target() -> Task:
    """DQN: the target network is a frozen copy, and its values are behind a stop_gradient."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        batch = _bandit(k1, lambda state: jnp.zeros((64, 2)))
        done = jax.random.bernoulli(k3, 0.2, (64,))
        return batch | {"next": batch["state"] + 0.1 * jax.random.normal(k2, (64, 4)), "done": done}

    def loss(params: Any, batch: Any) -> Any:
        value = jnp.take_along_axis(run_mlp(params["online"], batch["state"]), batch["action"][:, None], 1)[
            :, 0
        ]
        best = jnp.max(run_mlp(params["target"], batch["next"]), axis=-1)
        goal = batch["reward"] + 0.9 * (1 - batch["done"]) * best
        return jnp.mean(optax.huber_loss(value, jax.lax.stop_gradient(goal))), {}

    def init(key: jax.Array) -> Any:
        online = mlp(key, 4, 16, 2)
        return {"online": online, "target": jax.tree.map(jnp.array, online)}

    return Task(init=init, data=data, loss=loss, trainable=lambda params: only(params, "online"))


@clean(held_out=True)
def attention_pooling() -> Task:
    """A class token attends to the tokens that are no padding."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        tokens = text(k1, 32)
        mask = jnp.arange(TIME) < jax.random.randint(k2, (32, 1), 3, TIME)
        return {"tokens": jnp.where(mask, tokens, 0), "mask": mask, "y": tokens[:, 0] % 4}

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        embed, place = jax.random.normal(k1, (VOCABULARY, WIDTH)), jax.random.normal(k2, (TIME, WIDTH))
        return {"embed": embed, "place": place, "score": dense(k3, WIDTH, 1), "out": dense(k4, WIDTH, 4)}

    def predict(params: Any, batch: Any) -> jax.Array:
        x = jnp.tanh(params["embed"][batch["tokens"]] + params["place"])
        scores = jnp.where(batch["mask"], apply(params["score"], x)[..., 0], -1e9)
        return apply(params["out"], jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), x))

    return Task(
        init=init,
        data=data,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=4,
    )
