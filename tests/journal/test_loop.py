"""A loop of one's own: `run.steps`, `run.control`, `run.lap`, and the commands that it takes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.journal import CommandError, JournalError, Run, RunWriter, control_table
from lapwing.journal import _loop as loop_module
from lapwing.timing import LapSummary


@pytest.fixture(autouse=True)
def _polls_at_every_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "POLL_EVERY_S", 0.0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunWriter]:
    with Run.create("a", runs_dir=tmp_path) as run:
        yield run


def answer_of(run: Run, command: str, **arguments) -> tuple[str, str]:
    """Posts a command; the answer is there after the next step."""
    posted = Run.open(run.folder).post(command, **arguments)
    answer = Run.open(run.folder).answer(posted, timeout_s=60)
    assert answer is not None
    return answer["event"], answer.get("outcome") or answer["reason"]


def test_steps_are_numbered_as_in_range_and_logged_at_their_number(run: RunWriter):
    for step in run.steps(4):
        run.log(loss=10.0 - step)
        if step == 2:
            run.log(accuracy=0.5)
    assert run.columns()["step"].tolist() == [0, 1, 2, 2, 3]
    assert run.curve("accuracy")[0].tolist() == [2]


def test_the_end_says_how_many_steps_there_were(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for _ in run.steps(3):
            run.log(loss=0.25)
    ended = run.events()[-1]
    assert (ended["event"], ended["steps"]) == ("finished", 3)
    assert ended["outcome"].startswith("3 steps in ")
    assert ended["outcome"].endswith(": loss 0.25")


def test_a_break_ends_the_loop_and_counts_its_step(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps():
            run.log(loss=1.0)
            if step == 4:
                break
    assert (run.events()[-1]["event"], run.events()[-1]["steps"], run.state) == ("finished", 5, "finished")
    assert LapSummary.from_json(run.laps).step.count == 3  # The first one is apart, the last one was left.


def test_an_error_in_the_body_ends_the_run_as_failed_with_its_laps(tmp_path: Path):
    def train(run: RunWriter) -> None:
        with run:
            for step in run.steps(9):
                run.log(loss=1 / (3 - step))

    run = Run.create("a", runs_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        train(run)
    assert run.events()[-1]["outcome"] == "ZeroDivisionError: division by zero"
    assert run.laps is not None


def test_a_reopened_run_continues_after_its_last_logged_step(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps(6):
            run.log(loss=1.0)
            if step == 2:
                break
    with Run.reopen(run.folder) as again:
        assert list(again.steps(6)) == [3, 4, 5]
    with Run.reopen(run.folder) as again:
        assert list(again.steps(3)) == []
        again.log(step=3, loss=1.0)
        assert list(again.steps(5)) == [4]


def test_a_run_that_starts_at_a_checkpoint_undoes_what_came_after_it(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps(5):
            run.log(loss=float(step), sample="first")
    with Run.reopen(run.folder) as again:
        for step in again.steps(6, start=3):
            again.log(loss=-float(step), sample="second")
    reader = Run.open(run.folder)
    assert reader.columns()["loss"].tolist() == [0, 1, 2, -3, -4, -5]
    assert [entry["text"] for entry in reader.logged()] == ["first"] * 3 + ["second"] * 3
    with Run.reopen(run.folder) as again:
        assert list(again.steps(9, start=8)) == [8]  # A gap is nothing to undo.
    assert len(Run.open(run.folder).columns()["step"]) == 6


def test_a_second_loop_continues_where_the_first_ended(run: RunWriter):
    assert (list(run.steps(2)), list(run.steps(5))) == ([0, 1], [2, 3, 4])


@pytest.mark.parametrize("wrong", [{"n": -1}, {"n": 2.5}, {"n": 5, "start": -1}, {"checkpoint_every": "x"}])
def test_wrong_numbers_of_steps_get_a_sentence(run: RunWriter, wrong):
    name, value = list(wrong.items())[-1]
    with pytest.raises(JournalError, match=f"{name} should be a number of steps, but is {value!r}"):
        run.steps(**wrong)


# Commands.


def test_a_control_is_announced_set_and_answered(run: RunWriter):
    seen = []
    for step in run.steps(4):
        seen.append((run.control("lr", 0.1), run.control("batch", 32, low=1, about="examples")))
        if step == 1:
            posted = Run.open(run.folder).post("set", learning_rate=0.01, batch=64.0)
    assert seen == [(0.1, 32), (0.1, 32), (0.01, 64), (0.01, 64)]
    assert type(seen[-1][1]) is int
    answer = run.answer(posted)
    assert (answer["event"], answer["outcome"]) == ("applied", "learning_rate 0.1 → 0.01, batch 32 → 64")
    assert (answer["step"], Run.open(run.folder).controls) == (2, {"learning_rate": 0.01, "batch": 64.0})
    rows = control_table(run.controls or {}, run.control_arguments)
    assert [(row["name"], row["help"], row["expected"]) for row in rows] == [
        ("learning_rate", "learning rate, before the schedule's factor", "a positive number"),
        ("batch", "examples", "an integer of at least 1"),
    ]


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({}, float("nan"), "a number"),
        ({"low": 0}, -1, "a number of at least 0"),
        ({"high": 2}, 3, "a number of at most 2"),
        ({"low": -1, "high": 1}, 7, "a number from -1 to 1"),
    ],
)
def test_a_value_out_of_range_is_refused_before_it_is_sent(run: RunWriter, options, value, expected):
    run.control("heat", 1.0, **options)
    with pytest.raises(CommandError, match=f"heat should be {expected}, but is {value}"):
        Run.open(run.folder).post("set", heat=value)
    with pytest.raises(CommandError, match=r"'hat' cannot be set; did you mean heat\?"):
        Run.open(run.folder).post("set", hat=1.0)
    Run.open(run.folder).post("set", heat=-0.5 if "high" in options else 0.5)


def test_controls_with_mistakes_get_a_sentence(run: RunWriter):
    with pytest.raises(JournalError, match="the control 'name' is 'x', but a control is a number"):
        run.control("name", "x")  # type: ignore
    with pytest.raises(
        JournalError, match="the control 'learning_rate' should be a positive number, but is -1"
    ):
        run.control("lr", -1.0)


def test_what_was_set_still_holds_when_the_run_is_reopened(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps(2):
            run.control("heat", 1.0)
            run.control("other", 5)
            if step == 0:
                Run.open(run.folder).post("set", heat=0.5)
    with Run.reopen(run.folder) as again:
        assert (again.control("heat", 1.0), again.control("other", 6)) == (0.5, 6)
        assert Run.open(run.folder).controls == {"heat": 0.5, "other": 6.0}
        assert again.control("heat", 1.0, low=0.7) == 0.5  # It is registered.


def test_a_paused_run_waits_and_takes_commands(run: RunWriter):
    answers, waited = [], []

    def person():
        answers.append(answer_of(run, "pause"))
        paused_at = time.monotonic()
        answers.append((Run.open(run.folder).state, ""))
        answers.append(answer_of(run, "pause"))
        answers.append(answer_of(run, "set", heat=0.5))
        answers.append(answer_of(run, "resume"))
        waited.append(time.monotonic() - paused_at)
        answers.append(answer_of(run, "resume"))
        answers.append(answer_of(run, "stop"))

    thread = threading.Thread(target=person)
    for step in run.steps():
        run.control("heat", 1.0)
        run.log(loss=1.0)
        if step == 3:
            thread.start()
        time.sleep(0.001)
    thread.join()
    paused = int(answers[0][1].removeprefix("after step "))
    assert answers[1:6] == [
        ("paused", ""),
        ("refused", "it is paused already; `lapwing resume` continues it"),
        ("applied", "heat 1 → 0.5"),
        ("applied", f"from step {paused}"),
        ("refused", "it is not paused"),
    ]
    assert answers[6][1].startswith("after step ")
    assert run.stopped_by == "the command stop"
    step = LapSummary.from_json(run.laps).step
    assert step.max is not None
    assert step.max < max(0.2, *waited), "the pause counts for a step"
    assert list(run.steps()) == [], "a loop after a stop makes no step"


def test_a_stopped_run_ends_as_stopped_after_the_code_behind_the_loop(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps():
            run.log(loss=1.0)
            if step == 3:
                Run.open(run.folder).post("stop")
        run.note("saved")
    assert [event["event"] for event in run.events()[-3:]] == ["applied", "note", "stopped"]
    assert run.events()[-1]["outcome"].startswith("by the command stop, after 4 steps in ")
    assert run.columns()["step"].tolist() == [0, 1, 2, 3]


def test_checkpoints_are_saved_when_asked_for_and_when_due(run: RunWriter):
    saved = []
    for step in run.steps(7, checkpoint=saved.append, checkpoint_every=3):
        if step == 3:
            posted = Run.open(run.folder).post("checkpoint")
    assert saved == [3, 4, 6, 7]
    assert run.answer(posted)["outcome"] == "of step 4"
    for _ in run.steps(9, checkpoint=saved.append, checkpoint_every=3):
        pass
    assert saved == [3, 4, 6, 7, 9]


def test_a_stop_is_followed_by_a_checkpoint(run: RunWriter):
    saved = []
    for _ in run.steps(checkpoint=saved.append):
        posted = Run.open(run.folder).post("stop")
    assert (saved, run.answer(posted)["outcome"]) == ([1], "after step 1, with a checkpoint")


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        ("checkpoint", {}, "this loop saves no checkpoints; write run.steps(n, checkpoint=save)"),
        (
            "rollback",
            {},
            "this loop cannot return to an earlier step; stop it and start it from a checkpoint",
        ),
        ("laps", {"every": 3}, "this loop times every step"),
        ("set", {"heat": 3.0}, "this loop has no control 'heat'; it has none"),
    ],
)
def test_what_a_loop_cannot_do_is_refused(run: RunWriter, command, arguments, reason):
    for _ in run.steps(1):
        posted = Run.open(run.folder).post(command, **arguments)
    assert (run.answer(posted)["event"], run.answer(posted)["reason"]) == ("refused", reason)


def test_ctrl_c_ends_the_loop_after_its_step(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for step in run.steps():
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)
            run.log(loss=1.0)
    assert run.events()[-1]["outcome"].startswith("by Ctrl-C, after 3 steps in ")
    assert run.columns()["step"].tolist() == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_ends_the_loop_at_once(tmp_path: Path):
    def train(run: RunWriter) -> None:
        with run:
            for _ in run.steps():
                run.log(loss=1.0)
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    run = Run.create("a", runs_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(run)
    assert (run.state, run.columns()["step"].tolist()) == ("stopped", [0])


# Laps.


def test_phases_are_saved_as_laps(run: RunWriter):
    for _ in run.steps(5):
        with run.lap("forward"), run.lap("attack"):
            pass
        with run.lap("update", sync=lambda: None):
            pass
    summary = LapSummary.from_json(run.laps)
    assert [(phase.path, phase.count) for phase in summary.phases] == [
        ("forward", 4),
        ("forward/attack", 4),
        ("update", 4),
    ]


def test_a_phase_outside_of_a_loop_gets_a_sentence(run: RunWriter):
    with pytest.raises(JournalError, match=r"the phase 'forward' is in no step; loop over run\.steps\(n\)"):
        run.lap("forward")


def test_laps_are_there_while_the_run_runs(run: RunWriter, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loop_module, "SAVE_LAPS_EVERY_S", 0.0)
    for step in run.steps(5):
        if step == 3:
            assert LapSummary.from_json(Run.open(run.folder).laps).step.count > 0


def test_time_between_two_steps_counts_for_neither(run: RunWriter):
    for _ in run.steps(4, checkpoint=lambda done: time.sleep(0.05), checkpoint_every=1):
        pass
    typical = LapSummary.from_json(run.laps).step.p50  # One of them may have waited for a core.
    assert typical is not None
    assert typical < 0.04


LOOP = """
import sys, lapwing as lw
run = lw.Run.create("a", runs_dir=sys.argv[1])
print(run.folder, flush=True)
with run:
    for step in run.steps():
        run.log(loss=1.0, sample="x")
        print(step, flush=True)
"""


def test_a_killed_loop_has_lost_nothing_and_continues(tmp_path: Path):
    command = [sys.executable, "-c", LOOP, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = process.stdout.readline().strip()
        for _ in range(10):
            process.stdout.readline()
        process.kill()
        printed = process.stdout.read().split()
    with Run.reopen(folder) as again:
        logged = again.columns()["step"].tolist()
        assert logged == list(range(len(logged)))
        assert len(logged) >= 10 + len(printed)
        assert next(again.steps()) == len(logged)


def test_ctrl_c_while_paused_ends_the_loop(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        for _ in run.steps():
            Run.open(run.folder).post("pause")
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert run.state == "stopped"
    assert run.events()[-1]["outcome"].startswith("by Ctrl-C, after 1 steps in ")
