import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.core import Interrupt
from lapwing.journal import CommandError, Run
from lapwing.journal._inbox import Inbox
from lapwing.task import Penalty
from lapwing.train import Checkpointing, FitConfig, Schedule, fit
from lapwing.train._feed import NoFeed
from lapwing.train._fit import Alone
from lapwing.train._loop import TrainingLoop
from tests.slow import some

from .tasks import line


@pytest.fixture(autouse=True)
def _one_call_at_a_time(monkeypatch):
    monkeypatch.setattr("lapwing.train._fit._UNATTENDED_S", -1.0)


class Driven:
    """A run whose every call is made by hand, so that a command comes at a known step."""

    def __init__(self, tmp_path: Path, task=None, **options):
        self.run = Run.create("line", runs_dir=tmp_path)
        self.reader = Run.open(self.run.folder)
        self.said: list[str] = []
        config = FitConfig(
            **{"learning_rate": 0.1, "laps_every": 0, "steps": 1000, "log_every": 5, **options}
        )
        self.alone = Alone(task or line(), config, None)
        (state,) = self.alone.states
        self.loop = TrainingLoop(
            self.alone.program,
            state,
            NoFeed(),
            self.alone.calls.fetch,
            config,
            self.run,
            Interrupt(),
            self.said.append,
        )

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.alone.advance([self.loop], [self.loop])
            self.loop.end_window()
            self.loop.poll_commands()
            self.loop.save_if_due()

    def ask(self, command: str, **arguments):
        """The answer to a command that is posted now and seen after the next step."""
        sent = self.reader.post(command, **arguments)
        self.steps(1)
        answer = self.reader.answer(sent)
        assert answer is not None, "it was not answered"
        return answer


@pytest.fixture
def driven(tmp_path: Path):
    made = Driven(tmp_path)
    yield made
    made.loop.saver.close()
    made.run.end("stopped", "the test is over")


def test_a_rate_is_changed_at_the_next_step_and_not_before(driven: Driven):
    driven.steps(3)
    answer = driven.ask("set", lr=0.25, clip=0.5)
    assert (answer["event"], answer["outcome"], answer["step"]) == (
        "applied",
        "learning_rate 0.1 → 0.25, clip inf → 0.5",
        4,
    )
    driven.steps(2)
    driven.loop.on_metrics()
    history = driven.loop.logbook.history()
    assert history["effective_learning_rate"].tolist() == pytest.approx([0.1] * 4 + [0.25] * 2)
    assert history["clipped_norm"][4:].max() <= 0.5 * (1 + 1e-6)
    assert "set learning_rate=0.25 clip=0.5: learning_rate 0.1 → 0.25, clip inf → 0.5" in driven.said


def test_nothing_is_compiled_again(tmp_path: Path):
    traced = []

    def loss(params, batch):
        traced.append(1)
        return jnp.mean((batch @ params["w"] - 1) ** 2), {}

    penalties = {"l2": Penalty(0.0, lambda params: jnp.sum(params["w"] ** 2))}
    driven = Driven(tmp_path, line(loss=loss, penalties=penalties))
    driven.steps(6)
    for name in ("lr", "clip", "weight_decay", "l2"):
        assert driven.ask("set", **{name: 0.5})["event"] == "applied"
    assert driven.ask("rollback")["event"] == "applied"
    assert driven.ask("checkpoint")["event"] == "applied"
    driven.loop.saver.finish()
    assert len(traced) == 1
    driven.run.end("stopped", "")


@pytest.mark.slow
def test_the_weight_of_a_penalty_is_a_control(tmp_path: Path):
    penalties = {"size": Penalty(0.0, lambda params: jnp.sum(params["w"] ** 2))}
    driven = Driven(tmp_path, line(penalties=penalties))
    driven.steps(100)
    assert driven.ask("set", size=100.0)["outcome"] == "size 0 → 100"
    driven.steps(200)
    driven.loop.on_metrics()
    sizes = driven.loop.logbook.history()["size"]
    assert sizes[100] > 2.5
    assert sizes[-1] < 0.1
    driven.loop.saver.finish()
    driven.run.end("stopped", "")


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    some(
        [
            ("set", {"lr": -1}, "learning_rate should be a positive number, but is -1"),
            ("set", {"l1": 1}, "'l1' cannot be set; there are learning_rate, clip, weight_decay"),
            ("stopp", {}, "'stopp' is not a command; did you mean stop?"),
            ("resume", {}, "it is not paused"),
            ("rollback", {"to": 17}, "there is no checkpoint of step 17; there are: none"),
        ],
        0,
        1,
        2,
    ),
)
def test_what_cannot_be_done_is_refused_with_the_reason(driven: Driven, command, arguments, reason):
    before = jax.device_get(driven.loop.position.state.controls)
    sent = Inbox(driven.run.folder / "control").post(command, arguments)
    driven.steps(1)
    answer = driven.reader.answer(sent)
    assert (answer["event"], answer["reason"]) == ("refused", reason)
    assert jax.device_get(driven.loop.position.state.controls) == before


@pytest.mark.parametrize(
    ("value", "reason"),
    some(
        [
            (1e39, "learning_rate=1e+39 would be inf as float32; give a number that it can hold"),
            (1e-46, "learning_rate=1e-46 would be 0 as float32; give a number that it can hold"),
            (1e-40, "learning_rate=1e-40 would be 0 as float32; give a number that it can hold"),
            (10**100, "learning_rate should be a positive number, but has 101 digits"),
        ],
        0,
        2,
    ),
)
def test_a_value_is_judged_as_the_array_holds_it(driven: Driven, value, reason):
    sent = Inbox(driven.run.folder / "control").post("set", {"lr": value})
    driven.steps(1)
    answer = driven.reader.answer(sent)
    assert (answer["event"], answer["reason"]) == ("refused", reason)
    assert float(driven.loop.position.state.controls["learning_rate"]) == np.float32(0.1)


def test_a_number_of_four_hundred_digits_is_refused_with_its_file_and_the_run_lives(driven: Driven):
    Inbox(driven.run.folder / "control").post("set", {"lr": 10**400})
    driven.steps(2)
    refused = [event for event in driven.reader.events() if event["event"] == "refused"]
    assert [event["reason"] for event in refused] == ["it has an integer of more than 1000 bits"]
    assert driven.reader.damaged == 0
    assert float(driven.loop.position.state.controls["learning_rate"]) == np.float32(0.1)
    assert driven.ask("set", lr=0.2)["event"] == "applied"


def test_under_a_schedule_the_answer_has_the_base_and_the_effective_rate(tmp_path: Path):
    driven = Driven(tmp_path, schedule=Schedule("points", points=((0, 1.0), (10, 0.0))))
    driven.steps(3)
    answer = driven.ask("set", lr=0.05)
    assert answer["outcome"] == "learning_rate 0.1 → 0.05 (effective now 0.03 by the schedule)"
    driven.steps(1)
    driven.loop.on_metrics()
    history = driven.loop.logbook.history()["effective_learning_rate"]
    np.testing.assert_allclose(history, [0.1, 0.09, 0.08, 0.07, 0.03], rtol=1e-6)
    assert driven.reader.controls["learning_rate"] == 0.05
    driven.loop.saver.finish()
    driven.run.end("stopped", "")


def test_hyperparameters_that_the_optimizer_injects_are_set_without_compiling_again(tmp_path: Path):
    traced = []

    def loss(params, batch):
        traced.append(1)
        return jnp.mean((batch @ params["w"] - 1) ** 2), {}

    adam = optax.inject_hyperparams(optax.adam)
    driven = Driven(tmp_path, line(loss=loss, optimizer=adam))
    assert driven.reader.controls.keys() >= {"learning_rate", "b1", "b2", "eps", "clip", "weight_decay"}
    driven.steps(2)
    assert driven.ask("set", b1=0.8, lr=0.2)["outcome"] == "b1 0.9 → 0.8, learning_rate 0.1 → 0.2"
    assert driven.ask("set", eps=-1e-3)["event"] == "applied"  # Lapwing does not know what it may be.
    with pytest.raises(
        CommandError, match="'b3' cannot be set; there are learning_rate, clip, weight_decay, b1, b2"
    ):
        driven.ask("set", b3=0.5)
    assert len(traced) == 1
    driven.loop.saver.finish()
    driven.run.end("stopped", "")


def test_the_learning_rate_of_an_optimizer_that_is_complete_is_refused_with_the_reason(tmp_path: Path):
    driven = Driven(tmp_path, line(optimizer=optax.adam(1e-2)), learning_rate=1e-3)
    reason = (
        r"'lr' cannot be set: the optimizer of this run has its own; there are update_scale, clip\. To set it"
    )
    with pytest.raises(CommandError, match=reason):
        driven.ask("set", lr=0.5)
    assert driven.ask("set", update_scale=0.5)["outcome"] == "update_scale 1 → 0.5"
    driven.loop.saver.finish()
    driven.run.end("stopped", "")


def test_a_run_announces_what_can_be_set(tmp_path: Path):
    driven = Driven(
        tmp_path, line(penalties={"size": Penalty(0.5, lambda params: jnp.sum(params["w"] ** 2))})
    )
    expected = {"learning_rate": pytest.approx(0.1), "clip": float("inf"), "weight_decay": 0.0, "size": 0.5}
    assert driven.reader.controls == expected
    driven.ask("set", size=2, clip=0.5)
    assert driven.reader.controls == {**expected, "size": 2.0, "clip": 0.5}
    driven.loop.saver.finish()
    driven.run.end("stopped", "")


def test_going_back_to_the_best(driven: Driven):
    driven.steps(23)
    best = driven.loop.rules.trend.best_step
    assert 0 < best <= 20
    answer = driven.ask("rollback")
    assert answer["outcome"] == f"from step 24 to step {best}, with new data from there on"
    assert driven.loop.position.done == best
    assert int(driven.loop.position.state.step) == best
    driven.steps(3)
    driven.loop.on_metrics()
    driven.loop.logbook.write()
    assert driven.reader.columns()["step"].tolist() == list(range(best + 3))


def test_going_back_to_a_checkpoint(driven: Driven):
    driven.steps(7)
    assert driven.ask("checkpoint")["outcome"] == "of step 8"
    params = np.asarray(driven.loop.position.state.params["w"])
    driven.steps(12)
    assert driven.ask("rollback", to=8)["outcome"] == "from step 21 to step 8, with new data from there on"
    assert np.asarray(driven.loop.position.state.params["w"]).tobytes() == params.tobytes()
    assert driven.ask("rollback", to=9)["reason"].startswith("there is no checkpoint of step 9; there are: 8")


def test_laps_can_be_turned_on(driven: Driven):
    driven.steps(10)
    assert driven.loop.program.timer.times().phases.step.count == 0
    assert driven.ask("laps", every=1)["outcome"] == "the phases of one call in 1 are timed"
    driven.steps(3)
    assert driven.loop.program.timer.times().phases.step.count > 0


def test_a_paused_run_waits_with_a_checkpoint_and_obeys(tmp_path: Path):
    """The run in its own thread, and a person in this one."""
    run = Run.create("line", runs_dir=tmp_path)
    config = FitConfig(steps=10**9, learning_rate=0.1, laps_every=0, checkpoint=Checkpointing(seconds=1e9))
    results = []
    thread = threading.Thread(target=lambda: results.append(fit(line(), config, run, quiet=True)))
    thread.start()
    reader = Run.open(run.folder)

    def ask(command, **arguments):
        return reader.answer(reader.post(command, **arguments), timeout_s=120)

    def seconds_to_resume() -> float:
        asked = time.monotonic()
        assert ask("resume")["event"] == "applied"
        return time.monotonic() - asked

    try:
        assert ask("pause")["event"] == "applied"
        assert ask("pause")["reason"] == "it is paused already; `lapwing resume` continues it"
        assert reader.state == "paused"
        assert ask("set", lr=0.5)["event"] == "applied"
        step = reader.latest()["step"]
        time.sleep(0.3)
        assert reader.latest()["step"] == step
        assert list((run.folder / "checkpoints").glob(f"*-step-{int(step) + 1}.*"))
        took = [seconds_to_resume()]
        while took[-1] >= 1.0 and len(took) < 4:  # The machine may have been busy with others.
            assert ask("pause")["event"] == "applied"
            took.append(seconds_to_resume())
        assert took[-1] < 1.0
        deadline = time.monotonic() + 120
        while reader.latest()["step"] <= step and time.monotonic() < deadline:
            time.sleep(0.02)
        assert reader.latest()["effective_learning_rate"] == 0.5
    finally:
        ask("stop")
        thread.join()
    assert results[0].ended == "stopped"
    assert results[0].outcome.startswith("by the command stop, after ")
    assert reader.state == "stopped"
