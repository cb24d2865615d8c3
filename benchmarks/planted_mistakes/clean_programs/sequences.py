"""Correct programs on sequences: padding on the left, teacher forcing, tied weights, packing, a scan over layers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import lapwing as lw
from lapwing.bench.doctor import clean
from lapwing.task import Task

from .._parts import apply, config, gru, gru_step, layers, linear, run_gru


class CausalConv(eqx.Module):
    conv: eqx.nn.Conv1d
    left: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, dilation: int, key: jax.Array):
        self.conv = eqx.nn.Conv1d(inputs, outputs, 2, dilation=dilation, key=key)
        self.left = dilation

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.conv(jnp.pad(x, ((0, 0), (self.left, 0))))


@clean
def dilated_convolutions() -> Any:
    """Convolutions with padding on the left only: the output at a time depends on what was before."""

    def make(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return [CausalConv(1, 12, 1, k1), CausalConv(12, 12, 2, k2), eqx.nn.Conv1d(12, 1, 1, key=k3)]

    def predict(model: Any, batch: Any) -> jax.Array:
        def one(x: jax.Array) -> jax.Array:
            first, second, out = model
            h = jax.nn.relu(first(x[None]))
            return out(h + jax.nn.relu(second(h)))[0]

        return jax.vmap(one)(batch["x"])

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        series = jnp.sin(6 * jax.random.uniform(k1, (24, 1)) + 0.6 * jnp.arange(17))
        series = series + 0.2 * jax.random.normal(k2, series.shape)
        return {"x": series[:, :-1], "y": series[:, 1:]}

    class Holder(eqx.Module):
        parts: list[Any]

    task = lw.task.equinox(
        lambda key: Holder(make(key)),
        lambda model, batch: jnp.mean((predict(model.parts, batch) - batch["y"]) ** 2),
        data=data,
        predict=lambda model, batch: predict(model.parts, batch),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["y"],
    )
    return task, config()


@clean
def translation_with_teacher_forcing() -> Any:
    """The decoder reads the right answer shifted by one; words of padding do not count."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        embed = jax.random.normal(k1, (11, 12))
        return {
            "embed": embed,
            "encoder": gru(k2, 12, 24),
            "decoder": gru(k3, 12, 24),
            "out": linear(k4, 24, 11),
        }

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        length = jax.random.randint(k1, (32, 1), 3, 7)
        source = jax.random.randint(k2, (32, 6), 1, 10) * (jnp.arange(6) < length)
        answer = jnp.where(source > 0, 10 - source, 0)
        return {"source": source, "answer": answer}

    def loss(params: Any, batch: Any) -> Any:
        def run(cell: Any, h: jax.Array, tokens: jax.Array) -> Any:
            def step(h: jax.Array, token: jax.Array) -> Any:
                new = gru_step(cell, h, params["embed"][token])
                h = jnp.where(token[:, None] > 0, new, h)
                return h, h

            return jax.lax.scan(step, h, tokens.T)

        h, _ = run(params["encoder"], jnp.zeros((len(batch["source"]), 24)), batch["source"])
        begin = jnp.full((len(batch["answer"]), 1), 10)
        given = jnp.concatenate([begin, batch["answer"][:, :-1]], 1)
        _, hs = run(params["decoder"], h, given)
        logits = jnp.swapaxes(apply(params["out"], hs), 0, 1)
        counts = batch["answer"] > 0
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["answer"])
        return jnp.sum(each * counts) / jnp.sum(counts), {}

    return Task(init=init, data=data, loss=loss), config(400, 1e-2)


def _attend(params: Any, h: jax.Array, allowed: jax.Array) -> jax.Array:
    q, k, v = jnp.split(apply(params, h), 3, -1)
    scores = jnp.where(allowed, q @ k.mT / q.shape[-1] ** 0.5, -1e9)
    return jax.nn.softmax(scores) @ v


@clean
def tied_embeddings() -> Any:
    """The table of the inputs is the matrix of the outputs; distances in place of positions."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {
            "table": 0.3 * jax.random.normal(k1, (9, 16)),
            "qkv": linear(k2, 16, 48),
            "mlp": layers(k3, 16, 32, 16),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["table"][batch["tokens"]] * 4.0
        t = jnp.arange(h.shape[1])
        q, k, v = jnp.split(apply(params["qkv"], h), 3, -1)
        distance = (t[:, None] - t[None]).astype(jnp.float32)
        scores = jnp.where(distance >= 0, q @ k.mT / 4.0 - 0.5 * distance, -jnp.inf)
        h = h + jax.nn.softmax(scores) @ v
        first, last = params["mlp"]
        h = h + apply(last, jax.nn.gelu(apply(first, h)))
        return h @ params["table"].T

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        stride = jax.random.randint(k2, (24, 1), 1, 4)
        tokens = (jax.random.randint(k1, (24, 1), 0, 9) + stride * jnp.arange(11)) % 9
        return {"tokens": tokens[:, :-1], "next": tokens[:, 1:]}

    def loss(params: Any, batch: Any) -> Any:
        logits = predict(params, batch)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["next"]).mean(), {}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["next"],
        classes=9,
    )
    return task, config(300, 5e-3)


@clean
def packed_texts() -> Any:
    """Several texts in one row: attention stays within a text, positions begin anew, the rest of the row is padding."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        return {
            "table": jax.random.normal(k1, (9, 16)),
            "place": 0.3 * jax.random.normal(k2, (14, 16)),
            "qkv": linear(k3, 16, 48),
            "out": layers(k4, 16, 32, 9),
        }

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        first = jax.random.randint(k1, (24, 1), 4, 8)
        t = jnp.arange(15)
        text = jnp.where(t < first, 1, jnp.where(t < first + 5, 2, 0))
        position = jnp.where(text == 2, t - first, t)
        start = jax.random.randint(k2, (24, 3), 0, 8)
        stride = jax.random.randint(k3, (24, 3), 1, 4)
        value = jnp.take_along_axis(start, text, 1) + jnp.take_along_axis(stride, text, 1) * position
        tokens = jnp.where(text > 0, 1 + value % 8, 0)
        counts = (text[:, 1:] == text[:, :-1]) & (text[:, 1:] > 0)
        position = jnp.where(text > 0, position, 0)[:, :-1]
        return {
            "tokens": tokens[:, :-1],
            "next": tokens[:, 1:],
            "text": text[:, :-1],
            "position": position,
            "counts": counts,
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["table"][batch["tokens"]] + params["place"][batch["position"]]
        text = batch["text"]
        allowed = (text[:, :, None] == text[:, None]) & jnp.tril(jnp.ones((14, 14), bool))
        h = h + _attend(params["qkv"], h, allowed)
        first, last = params["out"]
        return apply(last, jax.nn.relu(apply(first, h)))

    def loss(params: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(predict(params, batch), batch["next"])
        return jnp.sum(each * batch["counts"]) / jnp.maximum(jnp.sum(batch["counts"]), 1), {}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["next"],
        classes=9,
    )
    return task, config(400, 5e-3)


@clean
def recomputed_stack_of_layers() -> Any:
    """Six equal blocks are one scan over stacked parameters, each recomputed in the backward pass, in bfloat16 with
    norms in float32."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4, k5 = jax.random.split(key, 5)
        blocks = {
            "scale": jnp.ones((6, 16)),
            "up": jax.random.normal(k2, (6, 16, 32)) / 4,
            "down": jax.random.normal(k3, (6, 32, 16)) / 32**0.5 / 6**0.5,
        }
        return {
            "table": jax.random.normal(k1, (8, 16)),
            "gru": gru(k4, 16, 16),
            "blocks": blocks,
            "out": linear(k5, 16, 8),
        }

    def block(h: jax.Array, layer: Any) -> Any:
        x = h.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * layer["scale"]
        x = x.astype(jnp.bfloat16)
        more = jax.nn.gelu(x @ layer["up"].astype(jnp.bfloat16)) @ layer["down"].astype(jnp.bfloat16)
        return h + more, None

    def predict(params: Any, batch: Any) -> jax.Array:
        h = run_gru(params["gru"], params["table"][batch["tokens"]]).astype(jnp.bfloat16)
        h, _ = jax.lax.scan(jax.checkpoint(block), h, params["blocks"])
        return apply(params["out"], h.astype(jnp.float32))

    def data(key: jax.Array, step: Any) -> Any:
        tokens = jax.random.randint(key, (24, 9), 0, 8)
        return {
            "tokens": tokens[:, 1:],
            "sum": (tokens[:, 1:] + jnp.pad(tokens[:, 1:-1], ((0, 0), (1, 0)))) % 8,
        }

    def loss(params: Any, batch: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(
            predict(params, batch), batch["sum"]
        ).mean(), {}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["sum"],
        classes=8,
    )
    return task, config(400, 3e-3)
