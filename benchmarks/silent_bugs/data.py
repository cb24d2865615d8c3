"""Batches: the same ones again, test examples in them, what a loader does to its own arrays."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.doctor import bug
from lapwing.task import Arrays, Stream, Task

from ._parts import CLASSES, VOCABULARY, clusters, cross_entropy, language_model, logits_of, mlp, run_mlp

_AGAIN = r"same as batch|repeat|same order|shuffl|seed|worker"


def _classified(data: Any, **fields: Any) -> Task:
    def predict(params: Any, batch: Any) -> jax.Array:
        return run_mlp(params, batch["x"])

    return Task(
        init=lambda key: mlp(key, 6, 16, CLASSES),
        data=data,
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
        **fields,
    )


def _points(count: int, seed: int = 1) -> dict[str, np.ndarray]:
    return jax.tree.map(np.asarray, clusters(jax.random.key(seed), count))


@bug("https://stackoverflow.com/questions/67180955", cause=_AGAIN)
def stackoverflow_67180955(wrong: bool) -> Task:
    """Every worker of the loader starts with the same numpy seed: they draw the same examples and augmentations."""
    points = _points(512)

    def batches() -> Iterator[Any]:
        workers = [np.random.RandomState(0 if wrong else number) for number in range(4)]
        while True:
            for worker in workers:
                rows = worker.randint(0, 512, 32)
                noise = worker.normal(scale=0.1, size=(32, 6)).astype(np.float32)
                yield {"x": points["x"][rows] + noise, "y": points["y"][rows]}

    return _classified(Stream(batches))


@bug(
    "https://github.com/Lightning-AI/pytorch-lightning/issues/20412",
    cause=_AGAIN,
    held_out=True,
)
def lightning_20412(wrong: bool) -> Task:
    """The workers are seeded again at the start of each epoch: every epoch has the same augmentations, here also in the
    same order."""
    points = _points(320)

    def epoch_of(epoch: int) -> Iterator[Any]:
        random = np.random.default_rng(0 if wrong else epoch)
        order = random.permutation(320)
        for rows in order.reshape(10, 32):
            noise = random.normal(scale=0.1, size=(32, 6)).astype(np.float32)
            yield {"x": points["x"][rows] + noise, "y": points["y"][rows]}

    return _classified(Stream(epoch_of))


class _WindowShuffle:
    """An iterator that shuffles windows of 64 rows; its state can be saved and restored."""

    def __init__(self, points: Any, whole_state: bool):
        self._points, self._whole = points, whole_state
        self._window, self._place, self._begin = 0, 0, True

    def __iter__(self) -> "_WindowShuffle":
        return self

    def __next__(self) -> Any:
        if self._place == 4:  # batches of 16 in a window
            self._place = 0
        if self._place == 0:
            if not self._begin:
                self._window += 1
            self._begin = False
        order = np.random.default_rng(self._window).permutation(64)
        rows = (64 * self._window + order[16 * self._place : 16 * self._place + 16]) % len(self._points["y"])
        self._place += 1
        return {name: each[rows] for name, each in self._points.items()}

    def get_state(self) -> dict[str, Any]:
        state = {"window": self._window, "place": self._place}
        return state | {"begin": self._begin} if self._whole else state

    def set_state(self, state: dict[str, Any]) -> None:
        self._window, self._place = state["window"], state["place"]
        self._begin = state.get("begin", self._begin)


class _Loader:
    def __init__(self, whole_state: bool):
        self._points, self._whole = _points(4096), whole_state

    def __iter__(self) -> _WindowShuffle:
        return _WindowShuffle(self._points, self._whole)


@bug("https://github.com/google/grain/pull/1179", cause=r"resum|restor|state of the (loader|iterator|data)")
def grain_1179(wrong: bool) -> Task:
    """A shuffling iterator does not save whether its first window is filled: restored into a new iterator, it uses a
    window twice, and every batch after it is another one."""
    return _classified(Stream(_Loader(whole_state=not wrong)))


@bug(
    "https://github.com/stefyste/RIAWELC/issues/2",
    cause=r"held-out|validation .*(train|also)|duplicate",
)
def riawelc_2(wrong: bool) -> Task:
    """Overlapping patches were split at random: all test images are also training images."""
    points = _points(512)
    validation = jax.tree.map(lambda each: each[:64], points) if wrong else _points(64, seed=2)
    return _classified(
        Arrays(points, batch_size=32),
        validation=Arrays(validation, batch_size=32),
    )


@bug("https://github.com/NVIDIA-NeMo/RL/issues/239", cause=_AGAIN, held_out=True)
def nemo_rl_239(wrong: bool) -> Task:
    """The data are not shuffled between epochs: every epoch has the same batches in the same order."""
    return _classified(Arrays(_points(256), batch_size=32, shuffle=not wrong))


@bug("https://github.com/hpcaitech/ColossalAI/issues/3894", cause=_AGAIN)
def colossalai_3894(wrong: bool) -> Task:
    """The loop makes a new iterator of the prompts in every step, and reads its first batch."""
    points = _points(512)

    def data(key: jax.Array, step: Any) -> Any:
        start = 0 if wrong else (step % 16) * 32
        order = jax.random.permutation(jax.random.fold_in(jax.random.key(3), 0 if wrong else step // 16), 512)
        rows = jax.lax.dynamic_slice(order, (start,), (32,))
        return jax.tree.map(lambda each: jnp.asarray(each)[rows], points)

    return _classified(data)


@bug(
    "https://github.com/ServiceNow/Fast-LLM/pull/253",
    cause=r"-100|negative|out of range|outside|same memory|in place",
    seen_later=True,
)
def fast_llm_253(wrong: bool) -> Task:
    """The loss mask is written into the labels, which share their memory with the tokens: the model reads -100 too."""
    random = np.random.default_rng(0)
    start, stride = random.integers(0, VOCABULARY - 1, (512, 1)), random.integers(1, 4, (512, 1))
    texts = (1 + (start + stride * np.arange(9)) % (VOCABULARY - 1)).astype(np.int32)

    def batches() -> Iterator[Any]:
        draw = np.random.default_rng(1)
        while True:
            tokens = texts[draw.integers(0, 512, 16)]
            labels = tokens if wrong else tokens.copy()
            labels[:, :3] = -100  # no loss on the prompt
            yield {"inputs": tokens[:, :-1].copy(), "targets": labels[:, 1:].copy()}

    def loss(params: Any, batch: Any) -> Any:
        counts = batch["targets"] != -100
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(logits_of(params, batch["inputs"])),
            jnp.where(counts, batch["targets"], 0)[..., None],
            axis=-1,
        )[..., 0]
        return -jnp.sum(jnp.where(counts, picked, 0.0)) / jnp.sum(counts), {}

    return Task(
        init=language_model,
        data=Stream(batches),
        loss=loss,
        predict=lambda params, batch: logits_of(params, batch["inputs"]),
        time_axis=1,
        output_time_axis=1,
    )
