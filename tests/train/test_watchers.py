"""Watchers on real runs: each planted trouble is reported once, with its evidence, and its clean twin is not."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.board._details import details
from lapwing.journal import Run
from lapwing.task import Arrays, Stream, Task
from lapwing.train import ConfigError, FitConfig, Rollback, Watch, fit

from .tasks import line, same_bits

PROBE = Watch(every=10)


def watched(
    task: Task, folder: Path, devices: int | None = None, **options: Any
) -> dict[str, dict[str, Any]]:
    """What the watchers of a run say, by their names. Each may speak once."""
    settings = {
        "steps": 60,
        "learning_rate": 0.01,
        "laps_every": 0,
        "log_every": 10,
        "watch": PROBE,
        **options,
    }
    with Run.create("watched", runs_dir=folder) as run:
        fit(task, FitConfig(**settings), run, quiet=True, devices=devices)
    return said_in(run)


def said_in(run: Run) -> dict[str, dict[str, Any]]:
    events = [event for event in run.events() if event["event"] == "watch"]
    assert len({event["watcher"] for event in events}) == len(events)
    for event in events:
        assert event["said"] in run.story
    return {event["watcher"]: event for event in events}


def network(
    *, bias: float = 0.0, dtype: Any = jnp.float32, unused: bool = False, sharp: bool = False
) -> Task:
    """Labels of points by a relu network with attention over their coordinates, and the ways in which it can fail."""

    def init(key):
        keys = jax.random.split(key, 5)
        weights = {
            "in": jax.random.normal(keys[0], (6, 16)) * 0.5,
            "b": jnp.where(jnp.arange(16) < 12, bias, 0.0),
            "key": jax.random.normal(keys[1], (6, 4)),
            "out": jax.random.normal(keys[2], (16, 2)) * 0.3,
        }
        if unused:
            weights["spare"] = jnp.ones(4)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), weights)

    def data(key, step):
        x = jax.random.normal(key, (32, 6))
        return {"x": x, "y": (x[:, 0] * x[:, 1] > 0).astype(jnp.int32)}

    def loss(params, batch):
        scores = jnp.einsum("bi,ik,jk->bij", batch["x"], params["key"], params["key"])
        if sharp:
            scores = scores * 0 + jnp.array([0.0, 0, 900, 0, 0, 0])
        mixed = jnp.einsum("bij,bj->bi", jax.nn.softmax(scores.astype(jnp.float32)), batch["x"])
        spare = 0 * params["spare"].sum() if unused else 0
        hidden = jax.nn.relu(mixed @ params["in"] + params["b"])
        logits = jax.nn.log_softmax((hidden @ params["out"]).astype(jnp.float32) + spare)
        return -jnp.take_along_axis(logits, batch["y"][:, None], 1).mean(), {}

    return Task(init=init, data=data, loss=loss, targets=lambda batch: batch["y"], classes=2)


def test_nothing_is_said_about_a_healthy_run(tmp_path: Path):
    assert watched(network(), tmp_path) == {}


@pytest.mark.slow
def test_several_troubles_in_one_run(tmp_path: Path):
    task = network(unused=True, bias=-50.0, sharp=True)
    said = watched(task, tmp_path, learning_rate=1e-3, steps=45)
    assert {*said} == {"still_leaf", "dead_units", "attention"}
    assert [said[name]["step"] for name in ("still_leaf", "dead_units", "attention")] == [40, 30, 30]


@pytest.mark.slow
def test_a_leaf_that_does_not_move(tmp_path: Path):
    said = watched(network(unused=True), tmp_path)
    assert list(said) == ["still_leaf"]
    assert said["still_leaf"]["evidence"]["largest_gradient"] == {"params['spare']": 0.0}
    assert "from step 10 to step 40" in said["still_leaf"]["said"]


def test_updates_too_small_for_bfloat16(tmp_path: Path):
    said = watched(network(dtype=jnp.bfloat16), tmp_path, learning_rate=1e-5)
    assert list(said) == ["lost_updates"]
    assert said["lost_updates"]["evidence"]["lost"]["params['in']"] > 0.9
    assert "bfloat16" in said["lost_updates"]["said"]


@pytest.mark.slow
def test_updates_that_bfloat16_holds(tmp_path: Path):
    assert watched(network(dtype=jnp.bfloat16), tmp_path, learning_rate=0.03) == {}


@pytest.mark.slow
def test_updates_of_a_run_that_has_converged_may_be_small(tmp_path: Path):
    assert watched(line(), tmp_path, steps=3000, steps_per_call=10, learning_rate=0.1) == {}


@pytest.mark.slow
def test_dead_units(tmp_path: Path):
    said = watched(network(bias=-50.0), tmp_path, learning_rate=1e-3)
    assert {*said} <= {"dead_units", "still_leaf"}
    (dead, of) = next(iter(said["dead_units"]["evidence"]["dead"].values()))
    assert (dead, of) == (12, 16)
    assert "12 of 16 units of the relu at test_watchers.py:" in said["dead_units"]["said"]
    assert "in loss are 0 for every example" in said["dead_units"]["said"]


@pytest.mark.slow
def test_attention_on_one_position(tmp_path: Path):
    said = watched(network(sharp=True), tmp_path)
    assert "all queries attend to position 2 of 6" in said["attention"]["said"]
    assert "test_watchers.py:" in said["attention"]["said"]


def leaky(*, leak: bool) -> Task:
    def data(key, step):
        one, other = jax.random.split(key)
        y = jax.random.bernoulli(one, 0.5, (32,)).astype(jnp.int32)
        x = jax.random.normal(other, (32, 4))
        return {"x": x.at[:, 0].set(9.0 * y - 4.5) if leak else x.at[:, 0].add(0.5 * y), "y": y}

    def loss(w, batch):
        logits = batch["x"] @ w
        return jnp.mean(jax.nn.softplus(logits) - batch["y"] * logits), {}

    return Task(init=lambda key: jnp.zeros(4), data=data, loss=loss, targets=lambda b: b["y"], classes=2)


def test_a_loss_far_below_chance_at_once(tmp_path: Path):
    said = watched(leaky(leak=True), tmp_path, learning_rate=0.3)["leak"]
    assert said["evidence"]["loss"] < 0.05 * said["evidence"]["chance"]
    assert said["evidence"]["updates"] < 60
    assert watched(leaky(leak=False), tmp_path, learning_rate=0.3) == {}


def few_examples(*, decay: bool) -> Task:
    """Noise that a polynomial can learn by heart, or a line that it can learn."""
    x = np.random.default_rng(0).normal(size=(12, 20)).astype(np.float32)
    test = np.random.default_rng(1).normal(size=(12, 20)).astype(np.float32)
    y, test_y = (a[:, 0] if decay else b for a, b in ((x, x[::-1, 1]), (test, test[:, 0])))

    def loss(w, batch):
        return jnp.mean((batch[0] @ w - batch[1]) ** 2), {}

    return Task(
        init=lambda key: jnp.zeros(20),
        data=Arrays((x, y), 12),
        loss=loss,
        validation=Arrays((test, test_y), 12),
    )


@pytest.mark.slow
def test_evaluation_and_training_part(tmp_path: Path):
    said = watched(few_examples(decay=False), tmp_path, steps=200, learning_rate=0.02, evaluate_every=20)[
        "parting"
    ]
    first, now = said["evidence"]["eval_loss"]
    assert now > 1.1 * first
    assert said["evidence"]["loss"][1] < said["evidence"]["loss"][0]
    assert "parting" not in watched(
        few_examples(decay=True), tmp_path, steps=200, learning_rate=0.02, evaluate_every=20
    )


@pytest.mark.slow
def test_watchers_are_switched_off(tmp_path: Path):
    assert watched(network(unused=True), tmp_path, watch=Watch(off=("still_leaf",), every=10)) == {}
    with pytest.raises(ConfigError, match=r"watch.off should be among .*dead_units"):
        Watch(off=("dead",))  # type: ignore[arg-type]


def test_the_bits_of_a_run_are_the_same_with_watchers(tmp_path: Path):
    task = network(unused=True, bias=-50.0)
    results = [
        fit(task, FitConfig(steps=50, laps_every=0, log_every=10, watch=watch), quiet=True)
        for watch in (Watch(every=1), Watch(off=("all",)))
    ]
    assert same_bits(*[result.state for result in results])
    np.testing.assert_array_equal(results[0].metrics["loss"], results[1].metrics["loss"])


@pytest.mark.slow
def test_they_speak_once_in_a_run_that_is_resumed(tmp_path: Path):
    options: dict[str, Any] = {"laps_every": 0, "log_every": 10, "watch": PROBE}
    with Run.create("watched", runs_dir=tmp_path) as run:
        fit(network(unused=True), FitConfig(steps=50, **options), run, quiet=True)
    assert [*said_in(run)] == ["still_leaf"]
    with Run.reopen(run.folder) as again:
        fit(network(unused=True), FitConfig(steps=120, **options), again, quiet=True, allow_change=True)
    assert [*said_in(Run.open(run.folder))] == ["still_leaf"]
    assert "still_leaf at step 40" in details("", run.folder)["journal"]  # The page of the board.


# A first value that is not finite.


def rooted(kind: str, hidden: bool) -> Task:
    """A square root in a loop, of what is negative from step 23 on, or in one batch only. If it is hidden, the loss
    leaves it out, so that only the gradient is not finite."""

    def data(key, step):
        bad = step >= 23 if kind == "lasting" else step == 23
        return jnp.where(bad, -1.0, 1.0) * jnp.ones((4, 3))

    def loss(params, x):
        def body(carry, number):
            rooted = jnp.sqrt(params.mean() * x.mean() + 5.0 - number)
            return carry + jnp.where(
                jnp.arange(3) == (number if hidden else number - 4), rooted, params
            ), None

        total, _ = jax.lax.scan(body, params, jnp.arange(6.0))
        masked = jnp.where(jnp.arange(3) > 1, -jnp.inf, total)  # Not finite either, and right.
        return jnp.sum(jax.nn.softmax(masked) + 0.1 * total**2), {}

    return Task(init=lambda key: jnp.ones(3), data=data, loss=loss)


LINE = next(
    i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "rooted = jnp.sqrt" in text
)


@pytest.mark.parametrize(
    ("kind", "hidden", "steps_per_call"),
    [
        ("lasting", True, 1),
        ("once", False, 7),
        pytest.param("once", True, 1, marks=pytest.mark.slow),
        pytest.param("lasting", False, 7, marks=pytest.mark.slow),
    ],
)
def test_a_first_nan_is_located(tmp_path: Path, kind: str, hidden: bool, steps_per_call: int):
    options: dict[str, Any] = {
        "steps_per_call": steps_per_call,
        "log_every": 14,
        "rollback": Rollback(times=0),
    }
    found = watched(rooted(kind, hidden), tmp_path, **options)["not_finite"]
    assert found["step"] == 23
    assert ("the gradient is not finite" if hidden else "the loss is not finite") in found["said"]
    evidence = found["evidence"]
    assert evidence["operation"] == "sqrt"
    assert evidence["place"] == f"test_watchers.py:{LINE} in body"
    assert evidence["iterations"][0]["number"] == 5
    (given,) = evidence["inputs"]
    assert given["type"] == "float32"
    assert -1.1 < given["least"] == given["largest"] < -0.5
    # A step that is not finite changes nothing, so if all that follow are not, the state before it is still there.
    again = f" ({23 - 14} steps made again)" if kind == "once" else ""
    assert f"replayed from the state before it{again} in " in found["said"]


def stream_with_nan() -> Task:
    batches = [np.full((4, 3), 1.0 + 0.1 * at, np.float32) for at in range(40)]
    batches[17][2, 1] = np.nan
    return line(data=Stream(batches))


def test_a_nan_in_a_batch_of_a_stream_is_named(tmp_path: Path):
    found = watched(stream_with_nan(), tmp_path, steps=30)["not_finite"]
    assert found["step"] == 17
    assert found["evidence"]["input"] == "batch"
    assert "batch holds nan before anything is computed" in found["said"]
