"""Real sweeps of real processes, some of which are killed."""

import contextlib
import csv
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import JournalError, Run, run_folders

TINY = ["--length", "2", "--batch-size", "1", "--laps-every", "0"]
# Who wants to kill a run in the middle pauses it first; compiling alone takes long enough for that.
STEPS = 500


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    return tmp_path


def ask(capsys, *words: str) -> tuple[int, str, str]:
    status = main(["sweep", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def start(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "lapwing", "sweep", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(what, seconds: float = 120.0):
    """What it gives, once that is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come")


def pause(restarts: int = 0, *, but: tuple[str, ...] = ()) -> Run:
    """A run that was restarted so often, as soon as it is there, held between two steps, with a checkpoint."""

    def look() -> Run | None:
        runs = [run for run in map(Run.open, run_folders("runs")) if run.name not in but]
        there = [run for run in runs if run.state == "running" and len(events(run, "restarted")) == restarts]
        return there[0] if there else None

    while True:
        run = wait_for(look)
        with contextlib.suppress(JournalError):  # It may have ended between looking and asking.
            answer = run.answer(run.post("pause"), timeout_s=120)
            if answer and answer["event"] == "applied":
                wait_for(functools.partial(saved_at, run, answer["step"]))
                return run


def saved_at(run: Run, step: int) -> list[Path]:
    return list(run.folder.glob(f"checkpoints/[0-9]*-step-{step}.*"))


def steps_of(run: Run) -> list[int]:
    return run.curve("loss")[0].tolist()


def process_of(run: Run) -> int:
    return json.loads((run.folder / "lock").read_text())["pid"]


def events(run: Run, kind: str) -> list[dict]:
    return [event for event in run.events() if event["event"] == kind]


def test_a_grid_with_a_point_that_fails(capsys):
    words = [
        "adding",
        *TINY,
        "--steps",
        "3",
        "--grid",
        "width=1,2",
        "learning_rate=0.1,-1",
        "--seeds",
        "2",
        "--name",
        "tiny",
        "--workers",
        "1",
    ]
    status, out, err = ask(capsys, *words)
    assert (status, err) == (1, "")
    assert (
        "failed: width=1,learning_rate=-1,seed=0: learning_rate should be a positive number, but is -1.0"
        in out
    )
    assert "4 of 8 points finished in " in out

    folder = Path("runs/tiny")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["metric"], summary["better"], summary["goal"]) == ("eval_loss", "lower", None)
    good, bad = summary["rows"][:2]
    assert good["values"] == {"width": 1, "learning_rate": 0.1}
    assert good["mean"] == pytest.approx(sum(good["by_seed"].values()) / 2)
    assert (good["finished"], bad["finished"], bad["mean"]) == (2, 0, None)
    assert len(summary["failed"]) == 4
    table = list(csv.DictReader((folder / "summary.csv").read_text().splitlines()))
    assert float(table[0]["mean"]) == good["mean"]
    assert float(table[0]["seed=1"]) == good["by_seed"]["1"]
    assert (folder / "heatmap.png").read_bytes()[1:4] == b"PNG"

    point = Run.open(folder / "width=2,learning_rate=0.1,seed=1")
    assert (point.state, point.config["width"], point.config["seed"]) == ("finished", 2, 1)
    assert main(["show", "tiny/width=2,learning_rate=0.1,seed=1"]) == 0
    assert main(["runs"]) == 0
    assert (
        len(re.findall(r"^tiny/width=\d,learning_rate=0.1,seed=\d ", capsys.readouterr().out, re.MULTILINE))
        == 4
    )

    status, out, _ = ask(capsys, *words, "--json", "--metric", "loss", "--goal", "100")
    told = json.loads(out)
    assert (status, told["ended"], told["metric"]) == (1, "failed", "loss")
    assert told["rows"][0]["success"] == 1.0
    assert len(events(point, "finished")) == len(events(point, "started")) == 1
    assert events(point, "restarted") == [], "a finished point was run again"

    status, _, err = ask(capsys, *words, "--clip", "2")
    assert status == 2
    assert err.startswith(
        "lapwing: runs/tiny holds another sweep; continue that one with `lapwing sweep --resume runs/tiny`, or"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "more"),
    [(signal.SIGKILL, []), (signal.SIGKILL, ["--seeds", "2", "--vectorize"]), (signal.SIGTERM, [])],
)
def test_a_worker_that_dies_is_noticed_and_its_points_go_on_from_their_checkpoints(
    capsys, number: signal.Signals, more: list[str]
):
    def kill() -> None:
        os.kill(process_of(pause()), number)

    killer = threading.Thread(target=kill)
    killer.start()
    words = ["--steps", str(STEPS), "--workers", "1", *more, "--json"]
    status, out, _ = ask(capsys, "adding", *TINY, *words)
    killer.join()
    runs = [Run.open(folder) for folder in run_folders("runs")]
    assert (status, json.loads(out)["finished"]) == (0, len(runs))
    assert any(event["step"] > 0 for run in runs for event in events(run, "resumed"))
    assert all(len(events(run, "finished")) == 1 for run in runs)
    assert any(events(run, "preempted") for run in runs) == (number == signal.SIGTERM)
    assert all(steps_of(run) == list(range(STEPS)) for run in runs)


@pytest.mark.slow
def test_a_point_that_kills_its_workers_fails_and_the_others_go_on(capsys):
    def kill() -> None:
        for number in range(2):
            os.kill(process_of(pause(restarts=number)), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    words = ["--steps", str(STEPS), "--grid", "width=1,2", "--workers", "1", "--name", "deadly"]
    status, out, _ = ask(capsys, "adding", *TINY, *words)
    killer.join()
    assert status == 1
    assert re.search(
        r"^failed: width=1,seed=0: its worker died 2 times, by SIGKILL; its output is in ", out, re.M
    )
    assert Run.open("runs/deadly/width=2,seed=0").state == "finished"


@pytest.mark.parametrize(
    ("number", "state", "workers", "points"),
    [
        pytest.param(signal.SIGINT, "stopped", "1", 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "preempted", "1", 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "preempted", "2", 3, marks=pytest.mark.slow),
    ],
)
def test_what_is_stopped_or_killed_goes_on(
    number: signal.Signals, state: str, workers: str, points: int, capsys
):
    words = ["adding", *TINY, "--steps", str(STEPS), "--grid", f"width=1..{points}", "--name", "long"]
    sweep = start(*words, "--workers", workers)
    try:
        run = pause()
        status, _, err = ask(capsys, "--resume", "runs/long")
        assert (status, err.count("\n")) == (2, 1)
        assert (
            f"the sweep long is being run by process {sweep.pid} on {socket.gethostname()}; wait for it"
            in err
        )
        os.kill(sweep.pid, number)
        out, err = sweep.communicate(timeout=120)
    finally:
        sweep.kill()
        sweep.communicate()
    # Also when the sweep itself was killed, its workers do not go on without it, and leave a checkpoint.
    under_way = ("running", "paused")
    wait_for(lambda: all(each.state not in under_way for each in map(Run.open, run_folders("runs"))))
    assert run.state == state
    assert err == ""
    if number != signal.SIGKILL:
        assert sweep.returncode == (130 if number == signal.SIGINT else 143)
        assert f"{state}; continue with the same command or: lapwing sweep --resume runs/long\n" in out
    before = int(run.latest()["step"])

    status, out, _ = ask(capsys, "--resume", "runs/long", "--workers", workers)
    assert status == 0
    assert f"{points} of {points} points finished" in out
    assert [event["step"] for event in events(run, "resumed")] == [before + 1]
    assert events(run, "restarted")[0]["changed"] == {}
    assert all(steps_of(Run.open(folder)) == list(range(STEPS)) for folder in run_folders("runs"))


@pytest.mark.slow
def test_in_a_halving_the_best_go_on_from_their_checkpoint(capsys):
    search = ["--search", "halving", "--rungs", "2", "--eta", "2", "--name", "halves"]
    words = ["adding", *TINY, "--steps", "40", "--grid", "learning_rate=1e-9,1e-2,2e-9,2e-2", *search]
    status, out, _ = ask(capsys, *words, "--json")
    told = json.loads(out)
    assert status == 0
    assert [row["steps"] for row in told["rows"]] == [20, 40, 20, 40]
    assert told["best"] in ("learning_rate=0.01", "learning_rate=0.02")
    run = Run.open("runs/halves/learning_rate=0.01,seed=0")
    assert [event["steps"] for event in events(run, "finished")] == [20, 40]
    assert [event["step"] for event in events(run, "resumed")] == [20]
    assert run.config["steps"] == 40

    assert json.loads(ask(capsys, *words, "--json")[1])["rows"] == told["rows"]
    assert len(events(run, "restarted")) == 1, "what was finished was run again"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["adding", "--grid", "widht=1"], "'widht' is not an option; did you mean width?"),
        (
            ["adding", "--grid", "width=1", "--name", "../x"],
            "the name of a sweep should be one word without slashes",
        ),
        (
            ["--resume", "nowhere"],
            "'nowhere' is not the folder of a sweep: sweep.json: No such file or directory",
        ),
    ],
)
def test_a_wrong_call_is_one_sentence(capsys, words: list[str], sentence: str):
    status, out, err = ask(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith(f"lapwing: {sentence}")
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_folder_that_is_no_sweep_is_left_alone(capsys):
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/notes.txt").write_text("mine")
    status, _, err = ask(capsys, "adding", "--grid", "width=1", "--name", "mine")
    assert (status, err) == (2, "lapwing: runs/mine is not empty and holds no sweep; choose another --name\n")
