"""Training on arrays and on what the host reads: the same numbers as by hand, and again after every interruption."""

import dataclasses
import itertools
import statistics
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.journal import Run
from lapwing.task import Arrays, DataError, Stream, TaskError
from lapwing.train import Checkpointing, ConfigError, FitConfig, Rollback, fit, fit_many
from lapwing.train._feed import make_feed
from tests.slow import some

from .tasks import line

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5}


def batch(number: int, rows: int = 8) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(rows, 3)).astype(np.float32)


def numbered(count=None):
    return (batch(number) for number in (itertools.count() if count is None else range(count)))


def trained(data, run=None, steps=20, **options):
    return fit(line(data=data), FitConfig(steps=steps, **{**OPTIONS, **options}), run, quiet=True)


def by_hand(batches):
    """The losses of a plain loop."""
    task = line()
    params = task.init(jax.random.key(0))
    optimizer = optax.adam(0.1)
    state = optimizer.init(params)
    losses = []
    step = jax.jit(jax.value_and_grad(lambda params, batch: task.loss(params, batch)[0]))
    for each in batches:
        loss, gradient = step(params, each)
        updates, state = optimizer.update(gradient, state)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize("steps_per_call", some([1, 6], 1))
def test_a_stream_trains_as_a_loop_by_hand(steps_per_call):
    result = trained(numbered, steps_per_call=steps_per_call)
    np.testing.assert_allclose(result.metrics["loss"], by_hand(numbered(20)), rtol=1e-6)


def test_a_smaller_batch_at_the_end_of_an_epoch_is_trained_on():
    def epoch():
        return [batch(0), batch(1), batch(2, rows=5)]

    for steps_per_call in (1, 4):
        result = trained(epoch, steps=10, steps_per_call=steps_per_call)
        np.testing.assert_allclose(
            result.metrics["loss"], by_hand((epoch() * 4)[:10]), rtol=1e-6, err_msg=str(steps_per_call)
        )


def test_arrays_are_shuffled_by_seed_and_epoch():
    rows = np.arange(12, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    seen = {}
    for seed in (0, 0, 1):
        # A learning rate that changes nothing leaves the losses to show the batches.
        result = trained(Arrays(rows, batch_size=4), steps=9, seed=seed, learning_rate=1e-30)
        epochs = result.metrics["loss"].reshape(3, 3)
        np.testing.assert_allclose(epochs.sum(axis=1), epochs.sum(axis=1)[0], rtol=1e-5)
        assert len({tuple(np.sort(epoch)) for epoch in epochs}) == 3
        assert seed not in seen or np.array_equal(seen[seed], epochs)
        seen[seed] = epochs
    assert not np.array_equal(seen[0], seen[1])
    plain = trained(Arrays(rows, 4, shuffle=False), steps=6, learning_rate=1e-30).metrics["loss"]
    assert np.array_equal(plain[:3], plain[3:])


def test_arrays_are_an_argument_of_the_program_and_not_a_constant():
    big = np.ones((1 << 18, 3), np.float32)
    task = line(data=lambda key, step: jnp.asarray(big)[jax.random.randint(key, 8, 0, len(big))])
    from lapwing.train._feed import Fed
    from lapwing.train._program import Program
    from lapwing.train._state import initial_state

    config = FitConfig()
    state, mask = initial_state(task, config)
    program = Program(task, mask, config, state)
    carry = program.load(None, state, 1, Fed())
    size = len(program.steps(carry, 1).func.as_text())
    assert size < big.nbytes / 4
    assert trained(Arrays(big, 8), steps=3).ended == "finished"


@pytest.mark.parametrize(
    ("data", "steps"),
    some(
        [
            (lambda: Stream(lambda: numbered(3), epochs=2), 6),
            (lambda: numbered(7), 7),
            (lambda: Arrays(np.ones((9, 3), np.float32), 4, epochs=3), 6),
        ],
        0,
    ),
)
def test_data_that_end_end_the_run(data, steps):
    result = trained(data(), steps=100, steps_per_call=4)
    assert (result.ended, len(result.metrics["loss"])) == ("finished", steps)
    assert "the data ended" in result.outcome


def sources():
    """Each returns new data, as another process would make them."""

    class Counted:
        def __init__(self):
            self.at = -1

        def __iter__(self):
            return self

        def __next__(self):
            self.at += 1
            return batch(self.at)

        def get_state(self):
            return {"at": self.at}

        def set_state(self, state):
            self.at = state["at"]

    rows = np.concatenate([batch(number) for number in range(6)])
    return {
        "arrays": lambda: Arrays(rows, 8),
        "generator": lambda: numbered(),
        "factory": lambda: numbered,
        "epochs": lambda: lambda epoch: [batch(10 * epoch + number) for number in range(7)],
        "with a state": Counted,
    }


LONGER = ("generator", "epochs", "factory")


@pytest.mark.parametrize(
    "name", some([pytest.param(name, marks=[pytest.mark.slow] * (name in LONGER)) for name in sources()], 0)
)
def test_a_run_that_was_stopped_sees_the_same_data_again(name, tmp_path: Path):
    make = sources()[name]
    options = {"steps": 30, "steps_per_call": 3, "evaluate_every": 6}
    with Run.create("whole", runs_dir=tmp_path) as whole:
        trained(make(), whole, **options)
    with Run.create("parts", runs_dir=tmp_path) as run:
        Run.open(run.folder).post("stop")
        assert trained(make(), run, **options).ended == "stopped"
    for steps in (14, 30):  # 14 is between two calls.
        with Run.reopen(run.folder) as again:
            task = line(data=make())
            fit(task, FitConfig(**OPTIONS | options | {"steps": steps}), again, quiet=True, allow_change=True)
    ours, theirs = (Run.open(each.folder).columns()["loss"] for each in (whole, run))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in ("arrays", "generator")), "with a state"],
)
def test_a_rollback_is_resumed_exactly(name, tmp_path: Path):
    """Rollbacks use up batches; how many must not depend on the clock."""
    make = sources()[name]

    def slow(batches):
        for number, each in enumerate(batches):
            if number in (3, 17):  # Longer than the host waits for metrics inside a window.
                time.sleep(0.6)
            yield each

    def spoiled(data):
        return line(
            data=data,
            loss=lambda params, batch: (
                jnp.where(batch[0, 0] > 1.0, jnp.nan, jnp.mean((batch @ (params["w"] - 1.0)) ** 2)),
                {},
            ),
        )

    config = FitConfig(**OPTIONS, steps=40, rollback=Rollback(times=50), checkpoint=Checkpointing(every=10))
    runs = []
    for kind in ("quick", "slow"):
        with Run.create(kind, runs_dir=tmp_path) as run:
            data = make()
            data = data if kind == "quick" or isinstance(data, Arrays) else slow(data)
            result = fit(spoiled(data), config, run, quiet=True)
            assert result.rollbacks > 0
        runs.append(run)
    with Run.create("parts", runs_dir=tmp_path) as run:
        first = fit(spoiled(make()), dataclasses.replace(config, steps=20), run, quiet=True)
        assert first.rollbacks > 0
    with Run.reopen(run.folder) as run:
        fit(spoiled(make()), config, run, quiet=True, allow_change=True)
    whole, *others = [Run.open(run.folder).columns()["loss"] for run in [*runs, run]]
    for other in others:
        np.testing.assert_array_equal(whole, other)


def test_arrays_continue_in_the_order_after_their_rollbacks():
    def feed():
        return make_feed(line(data=Arrays(batch(0, rows=40), 4)), FitConfig(), say=print)

    rolled, resumed, fresh = feed(), feed(), feed()
    for number in (1, 2):
        rolled.roll_back(number)
    resumed.restore(rolled.position(), 7, 2)
    ours, theirs, other = (np.asarray(each.take(7, 1).own) for each in (rolled, resumed, fresh))
    np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(ours, other)


def test_timing_uses_up_no_batches():
    read = []

    def data():
        for number in itertools.count():
            read.append(number)
            yield batch(number)

    result = trained(data, steps=20, laps_every=1)
    np.testing.assert_allclose(result.metrics["loss"], by_hand(numbered(20)), rtol=1e-6)
    assert len(read) <= 20 + 4
    phases = [phase.path for phase in result.times.phases.phases]
    assert phases[:2] == ["wait for data", "data"]


def test_the_wait_for_data_is_measured():
    took = []

    def waits(pause: float) -> float:
        def slow():
            for each in numbered():
                start = time.perf_counter()
                time.sleep(pause)
                took.append(time.perf_counter() - start)
                yield each

        result = trained(slow, steps=20, laps_every=1)
        return next(each for each in result.times.phases.phases if each.path == "wait for data").p50

    found = waits(0.02)
    if found < 0.005:  # On a busy machine a step may take longer than that, and then nothing waits for data.
        took.clear()
        found = waits(0.5)
    assert 0.005 < found < 2.5 * statistics.median(took)


def test_an_error_of_the_data_ends_the_run_with_their_sentence(tmp_path: Path):
    def data():
        yield from numbered(5)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"), Run.create("a", runs_dir=tmp_path) as run:
        trained(data, run)
    assert Run.open(run.folder).state == "failed"
    assert not [thread for thread in threading.enumerate() if thread.name == "lapwing data"]


def test_next_in_a_traced_function_is_refused():
    iterator = numbered()
    with pytest.raises(
        DataError, match="every step would train on the first batch; give the iterable itself"
    ):
        trained(lambda key, step: jnp.asarray(next(iterator)))


def test_the_checks_refuse_it_with_the_same_sentence():
    iterator = numbered()
    with pytest.raises(DataError, match="give the iterable itself"):
        check.quick(line(data=lambda key, step: jnp.asarray(next(iterator))))


@pytest.mark.parametrize("wrap", some([lambda batches: batches, Stream], 1))
def test_the_checks_use_up_no_batch_of_an_iterator(wrap):
    task = line(data=wrap(numbered(20)))
    check.run_all(task, only=["fresh_data", "dead_parameters"])
    check.quick(task)
    result = fit(task, FitConfig(steps=30, **OPTIONS), quiet=True)
    assert result.metrics["loss"].tolist() == trained(numbered(20), steps=30).metrics["loss"].tolist()
    assert len(result.metrics["loss"]) == 20
    with pytest.raises(DataError, match="an iterator that was read before cannot be read again"):
        check.quick(task)


def test_the_quick_checks_read_the_data_once():
    opened = []

    def data():
        opened.append(1)
        return numbered()

    check.quick(line(data=data))
    assert len(opened) == 1


def test_one_batch_only():
    result = trained(numbered, steps=6, overfit_batch=True)
    np.testing.assert_allclose(result.metrics["loss"], by_hand([batch(0)] * 6), rtol=1e-6)
    rows = np.concatenate([batch(0), batch(1)])
    losses = trained(Arrays(rows, 8), steps=9, overfit_batch=True, learning_rate=1e-30).metrics["loss"]
    assert len({*losses.tolist()}) == 1  # In every epoch, whose orders differ.


@pytest.mark.parametrize("kind", some(["arrays", "stream"], 1))
def test_validation_is_the_mean_over_all_examples(kind):
    rows = batch(0, rows=10)
    data = Arrays(rows, 4) if kind == "arrays" else [rows[:4], rows[4:8], rows[8:]]
    task = line(validation=data)
    result = fit(task, FitConfig(**OPTIONS, steps=3), quiet=True)
    loss, metrics = task.loss(result.params, jnp.asarray(rows))
    assert result.evaluation["eval_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert result.evaluation["eval_distance"] == pytest.approx(float(metrics["distance"]), rel=1e-5)


def test_an_evaluation_of_validation_batches_of_ones_own():
    rows = batch(0, rows=10)
    task = line(validation=Arrays(rows, 4), evaluate=lambda params, batch: {"mean": jnp.mean(batch)})
    result = fit(task, FitConfig(**OPTIONS, steps=3), quiet=True)
    assert result.evaluation == {"eval_mean": pytest.approx(float(rows.mean()), abs=1e-6)}
    with pytest.raises(TaskError, match="write evaluate\\(params, key\\)"):
        line(validation=lambda key, step: 0)


@pytest.mark.slow
def test_many_runs_on_arrays_get_the_batches_that_each_would_get_alone():
    data = Arrays(np.concatenate([batch(number) for number in range(6)]), 8)
    configs = [FitConfig(**OPTIONS, steps=20, seed=seed) for seed in range(3)]
    together = fit_many(lambda _: line(data=data), configs, [None] * 3)
    for config, result in zip(configs, together, strict=True):
        alone = fit(line(data=data), config, quiet=True)
        np.testing.assert_allclose(result.metrics["loss"], alone.metrics["loss"], rtol=1e-5)
    with pytest.raises(TaskError, match="are read run by run"):
        fit_many(lambda _: line(data=numbered), configs, [None] * 3)


def test_accumulation_gives_the_update_of_the_whole_batch():
    whole, parts = (trained(numbered, accumulate=accumulate) for accumulate in (1, 4))
    np.testing.assert_allclose(whole.metrics["loss"], parts.metrics["loss"], rtol=1e-5)
    np.testing.assert_allclose(whole.metrics["gradient_norm"], parts.metrics["gradient_norm"], rtol=1e-4)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-5), whole.params, parts.params))
    with pytest.raises(ConfigError, match="accumulate should divide the batch of 8"):
        trained(numbered, accumulate=3)
