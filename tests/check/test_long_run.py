"""What shows over a longer time, or before the first step.

Optimizers that never forget, schedules that end early, copies that drift apart, evaluations that are not finite,
inverted masks, loaders that do not continue where they were.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check._copies import are_copies
from lapwing.check._forgets import Course
from lapwing.check._fresh import examples_of
from lapwing.check._leakage import one_epoch
from lapwing.task import Arrays, Stream, Task
from lapwing.train import FitConfig
from tests.slow import some


def line(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    x = jax.random.normal(key, (8, 3))
    return {"x": x, "y": x @ jnp.array([1.0, -2.0, 0.5])}


LINE = Task(
    init=lambda key: {"w": 0.1 * jax.random.normal(key, (3,)), "b": jnp.zeros(())},
    data=line,
    loss=lambda params, batch: (jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2), {}),
)


def outcome(task: Task, name: str, config: FitConfig | None = None) -> tuple[str, str]:
    (found,) = check.run_all(task, config, only=[name])
    return found.result, found.detail


def never_reset() -> optax.GradientTransformation:
    """Adds all gradients up."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        total = jax.tree.map(jnp.add, state, updates)
        return jax.tree.map(lambda g: -0.01 * g, total), total

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


FORGETFUL = {
    "momentum": optax.sgd(1e-2, momentum=0.99),
    "adam": optax.adam(1e-3),
    "decay": optax.adamw(1e-3, weight_decay=0.1),
    "accumulated": optax.MultiSteps(optax.adam(1e-3), 3),
    "rmsprop": optax.rmsprop(1e-3, momentum=0.9),
    "adagrad": optax.adagrad(1e-2),
}


@pytest.mark.parametrize("name", some(FORGETFUL, 0))
def test_usual_optimizers_forget(name: str):
    assert outcome(dataclasses.replace(LINE, optimizer=FORGETFUL[name]), "optimizer")[0] == "passed"


@pytest.mark.parametrize(
    "optimizer", some([never_reset(), optax.trace(1.0), optax.chain(optax.clip(1.0), never_reset())], 0)
)
def test_gradients_that_are_never_reset_are_found(optimizer: Any):
    result, detail = outcome(dataclasses.replace(LINE, optimizer=optimizer), "optimizer")
    assert result == "failed"
    assert "the optimizer accumulates gradients, and never forgets one" in detail


def test_a_schedule_that_ends_early_is_found_wherever_it_is():
    cosine, config = optax.cosine_decay_schedule(1.0, 100), FitConfig(steps=100)
    fast = lambda step: cosine(4 * step)  # noqa: E731
    for change in ({"schedule": fast}, {"optimizer": optax.adam(fast)}):
        result, detail = outcome(dataclasses.replace(LINE, **change), "optimizer", config)
        assert result == "failed"
        assert "the schedule is 0 from step 25 on, and the training has 100" in detail
    for change in ({"schedule": cosine}, {"optimizer": optax.adam(cosine)}):
        assert outcome(dataclasses.replace(LINE, **change), "optimizer", config)[0] == "passed"
    zero = dataclasses.replace(LINE, schedule=lambda step: 0.0 * step)
    assert "the schedule is 0 in all 100 steps" in outcome(zero, "optimizer", config)[1]


@pytest.mark.slow
def test_a_schedule_counts_the_updates_of_an_optimizer_that_accumulates():
    config = FitConfig(steps=400)
    for length, expected in ((200, "passed"), (100, "failed")):
        rate = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 20, length)
        every_other = optax.MultiSteps(optax.chain(optax.clip(1.0), optax.adam(rate)), 2)
        result, detail = outcome(dataclasses.replace(LINE, optimizer=every_other), "optimizer", config)
        assert result == expected, detail
    assert "0 from update 100 on, and the training has 200 (in 400 steps): nothing is learned" in detail


def test_the_updates_of_steps_beyond_those_that_were_seen_are_extrapolated():
    course = Course(1, [np.arange(1, 11) // 2, np.arange(1, 11)])
    assert [course.updates(steps, 0) for steps in (1, 4, 10, 20)] == [0, 2, 5, 10]
    assert course.updates(20, 1) == course.updates(20, 2) == 20
    assert Course(3).updates(7, 0) == 7


def averaged(updates: Any, state: Any, params: Any = None) -> Any:
    return jax.tree.map(lambda g: jnp.broadcast_to(g.mean(0, keepdims=True), g.shape), updates), state


def test_copies_that_drift_apart_are_found():
    def init(key: jax.Array) -> Any:
        return {"w": jnp.stack([0.1 * jax.random.normal(key, (3,))] * 2)}

    def loss(params: Any, batch: Any) -> Any:
        x, y = batch["x"].reshape(2, 4, 3), batch["y"].reshape(2, 4)
        return jnp.mean((jnp.einsum("dbi,di->db", x, params["w"]) - y) ** 2), {}

    mean = optax.GradientTransformation(lambda params: optax.EmptyState(), averaged)
    alone = Task(init=init, data=line, loss=loss, optimizer=optax.sgd(0.1))
    result, detail = outcome(alone, "devices")
    assert result == "failed"
    assert (
        "equal copies, and 3 steps of training drive them apart: ['w'] differs between devices 0 and 1"
        in detail
    )
    together = dataclasses.replace(alone, optimizer=optax.chain(mean, optax.sgd(0.1)))
    assert outcome(together, "devices")[0] == "passed"
    assert outcome(LINE, "devices")[0] == "not applicable"


def test_zeros_and_equal_rows_of_one_leaf_are_no_copies():
    row = np.array([0.1, 0.4, -0.2])
    assert are_copies({"w": np.stack([row, row]), "b": np.zeros((2, 5))})
    assert not are_copies({"w": np.stack([row, row]), "b": np.zeros(3)})
    assert not are_copies({"w": np.ones((2, 3)), "b": np.zeros((2, 5))})
    assert not are_copies({"w": np.stack([row, 2 * row])})
    assert not are_copies({"w": np.float32(1.0)})


def test_an_evaluation_that_divides_by_a_count_of_zero_is_found():
    def with_state(safe: bool) -> Task:
        def predict(params: Any, batch: Any, state: Any) -> jax.Array:
            mean = state["sum"] / (jnp.maximum(state["count"], 1.0) if safe else state["count"])
            return (batch["x"] - mean) @ params

        def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
            after = {"sum": state["sum"] + batch["x"].mean(0), "count": state["count"] + 1}
            return jnp.mean((batch["x"] @ params - batch["y"]) ** 2), {}, after

        start = {"sum": jnp.zeros(3), "count": jnp.zeros(())}
        return Task(init=lambda key: (jnp.ones(3), start), data=line, loss=loss, predict=predict)

    result, detail = outcome(with_state(safe=False), "modes")
    assert (result, detail.partition(". ")[0]) == (
        "failed",
        "the prediction before the first step is not finite: 100% of it is nan",
    )
    assert outcome(with_state(safe=True), "modes")[0] == "passed"


def texts(key: jax.Array, step: Any) -> dict[str, jax.Array]:
    k1, k2 = jax.random.split(key)
    tokens = jax.random.randint(k1, (16, 6), 1, 9)
    mask = jnp.arange(6) < jax.random.randint(k2, (16, 1), 2, 6)
    return {"tokens": jnp.where(mask, tokens, 0), "mask": mask, "y": tokens[:, 0] % 3}


@pytest.mark.parametrize("kept", some([1, 0], 1))
def test_a_mask_that_keeps_the_padding_is_found(kept: int):
    def predict(params: Any, batch: Any) -> jax.Array:
        x = params["embed"][batch["tokens"]] + params["place"][None]
        scores = jnp.where(batch["mask"] == kept, x[..., 0], -1e9)
        return jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), x)

    def init(key: jax.Array) -> Any:
        return {"embed": jax.random.normal(key, (9, 3)), "place": jax.random.normal(key, (6, 3)) / 2}

    def loss(params: Any, batch: Any) -> Any:
        logits = predict(params, batch)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])), {}

    result, detail = outcome(Task(init=init, data=texts, loss=loss, predict=predict), "labels")
    assert ("only padding is read, so the mask is inverted" in detail) == (kept == 0)
    assert result == ("failed" if kept == 0 else "passed")


def test_an_input_is_all_arrays_of_an_example():
    batch = {"mask": np.ones((4, 6), bool), "tokens": np.arange(24).reshape(4, 6), "y": np.arange(4)}
    assert len({row for row, _ in examples_of(batch)}) == 4


class Counting:
    """Batches 0, 1, 2, …; every third one is followed by a jump, which is lost if its state is not saved."""

    def __init__(self, whole: bool):
        self.whole, self.number, self.jumps = whole, 0, 0

    def __iter__(self) -> "Counting":
        return Counting(self.whole)

    def __next__(self) -> Any:
        self.number += 1
        self.jumps += self.number % 3 == 0
        x = np.arange(24.0, dtype=np.float32).reshape(8, 3) + self.number + 100 * self.jumps
        return {"x": x, "y": np.ones(8, np.float32)}

    def get_state(self) -> dict[str, int]:
        return {"number": self.number} | ({"jumps": self.jumps} if self.whole else {})

    def set_state(self, state: dict[str, int]) -> None:
        self.number, self.jumps = state["number"], state.get("jumps", 0)


class Loader:
    def __init__(self, whole: bool):
        self.whole = whole

    def __iter__(self) -> Counting:
        return Counting(self.whole)


def test_a_loader_that_saves_a_part_of_its_state_is_found():
    task = dataclasses.replace(LINE, data=Stream(Loader(whole=False)))
    result, detail = outcome(task, "fresh_data")
    assert result == "failed"
    assert "the data are not resumed where they were: restored after 3 batches" in detail
    assert (
        "the data are not resumed"
        not in outcome(dataclasses.replace(LINE, data=Stream(Loader(whole=True))), "fresh_data")[1]
    )


def test_data_without_a_state_are_not_resumed():
    points = {
        "x": np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32),
        "y": np.zeros(64, np.float32),
    }
    assert outcome(dataclasses.replace(LINE, data=Arrays(points, batch_size=8)), "fresh_data")[0] == "passed"


def test_validation_examples_are_found_in_training_that_repeats_its_epochs():
    points = np.random.default_rng(0).normal(size=(192, 4)).astype(np.float32)
    data = {"x": points[:, :3], "y": points[:, 3]}
    seen = jax.tree.map(lambda each: each[:16], data)
    new = jax.tree.map(lambda each: each + 0.5, seen)
    for held_out, expected in ((seen, "failed"), (new, "passed")):
        task = dataclasses.replace(
            LINE, data=Arrays(data, batch_size=16), validation=Arrays(held_out, batch_size=16)
        )
        assert outcome(task, "leakage")[0] == expected


def test_draws_from_few_examples_are_no_epochs():
    few = np.random.default_rng(0).integers(0, 40, (300, 1))
    assert len(one_epoch(few)) == 300
    assert len(one_epoch(np.tile(np.arange(150)[:, None], (2, 1)))) == 150


def test_a_loss_that_draws_with_a_constant_key_is_told_so():
    def noisy(constant: bool) -> Task:
        def loss(params: Any, batch: Any, key: jax.Array) -> Any:
            key = jax.random.key(0) if constant else key
            x = jnp.where(jax.random.bernoulli(key, 0.9, batch["x"].shape), batch["x"], 0.0)
            return jnp.mean((x @ params["w"] + params["b"] - batch["y"]) ** 2), {}

        return dataclasses.replace(LINE, loss=loss, predict=lambda params, batch: batch["x"] @ params["w"])

    result, detail = outcome(noisy(constant=True), "modes")
    assert result == "failed"
    assert "the loss takes a key, and does not use it: what it draws at " in detail
    assert outcome(noisy(constant=False), "modes")[0] == "passed"
