"""Mistakes in the order of data, in what is drawn, and in its augmentation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.task import Task

from .._parts import apply, config, forward, gru, layers, linear, nll, planted, run_gru


@planted(
    cause=r"sorted|shuffl|order|(one|same|single) (class|label|speaker)|class.{0,40}batch|labels?.{0,40}batch",
    sees="the loss is near zero, and jumps every hundred steps; the last speaker is all that is known at the end",
)
def one_speaker_after_the_other(wrong: bool) -> Any:
    """Recordings are read file by file, one for each speaker, so all the examples of many batches have one label."""
    voices = np.random.default_rng(4).normal(size=(4, 10)) * 0.8

    def data(epoch: int) -> Iterator[Any]:
        rng = np.random.default_rng(epoch)
        speaker = np.repeat(np.arange(4, dtype=np.int32), 1600)
        if not wrong:
            speaker = rng.permutation(speaker)
        for now in speaker.reshape(200, 32):
            x = voices[now] + rng.normal(size=(32, 10))
            yield {"x": x.astype(np.float32), "speaker": now}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])

    task = Task(
        init=lambda key: layers(key, 10, 24, 4),
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["speaker"]), {}),
        predict=predict,
        targets=lambda batch: batch["speaker"],
        classes=4,
    )
    return task, config(400)


@planted(
    cause=r"same (batch|data|rows|examples)|fresh|repeat|identical|again|few (different )?batches"
    r"|ignores.{0,20}(key|step)|does not (use|depend|change)",
    sees="the loss falls to the noise and below, in stairs of a hundred steps, and new data have another loss",
)
def drawn_anew_once_in_an_epoch(wrong: bool) -> Any:
    """Data are simulated by the number of the epoch, not of the step: 100 steps in a row get one batch."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(jax.random.fold_in(jax.random.key(20), step // 100) if wrong else key)
        x = jax.random.normal(k1, (24, 8))
        y = x[:, 0] * x[:, 1] + jnp.sin(2 * x[:, 2]) + 0.3 * jax.random.normal(k2, (24,))
        return {"x": x, "y": y}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    task = Task(
        init=lambda key: layers(key, 8, 48, 48, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400)


@planted(
    cause=r"augment|prepare|flip|labels? (no longer|not|do|stay|unchanged)|reverse",
    sees="the loss is stuck at the logarithm of 2 with augmentation, and falls without it",
)
def played_backwards_with_the_old_label(wrong: bool) -> Any:
    """Half of the sounds are played backwards, to have more of them. What is asked is whether the tone rises or falls,
    and the label stays."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        rises = jax.random.bernoulli(k1, 0.5, (32,))
        slope = jnp.where(rises, 1, -1) * jax.random.uniform(k2, (32,), minval=0.05, maxval=0.2)
        tone = slope[:, None] * (jnp.arange(12) - 5.5) + 0.3 * jax.random.normal(k3, (32, 12))
        return {"tone": tone[..., None], "rises": rises.astype(int)}

    def prepare(params: Any, batch: Any, key: jax.Array) -> Any:
        backwards = jax.random.bernoulli(key, 0.5, (32,))
        tone = jnp.where(backwards[:, None, None], batch["tone"][:, ::-1], batch["tone"])
        return {"tone": tone, "rises": batch["rises"] if wrong else batch["rises"] ^ backwards}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"gru": gru(k1, 1, 12), "out": linear(k2, 12, 2)}

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params["out"], run_gru(params["gru"], batch["tone"])[:, -1])

    def loss(params: Any, batch: Any) -> Any:
        return nll(predict(params, batch), batch["rises"]), {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        return {"loss": loss(params, data(key, 0))[0]}

    task = Task(
        init,
        data,
        loss,
        prepare=prepare,
        evaluate=evaluate,
        predict=predict,
        time_axis={"tone": 1, "rises": None},
        targets=lambda batch: batch["rises"],
        classes=2,
    )
    return task, config(300)
