"""The models of examples/ that are files of their own, as a person uses them: trained by the command line, killed and
resumed to the same bits, swept over their own options, checked, shown on the board.

PyTorch's loop is no experiment but a script; `tests/journal/test_frameworks.py` kills and resumes it.
"""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import Run, run_folders
from lapwing.train import Checkpoints
from tests.board.serving import serving, until

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS, KILLED_AFTER = 400, 100
TRAINING = (
    f"--steps {STEPS} --evaluate-every 40 --log-every 20 --checkpoint.every 40 --laps-every 0 --no-check "
    "--quiet"
).split()


class Example(NamedTuple):
    file: str
    small: str
    """options with which it compiles and steps quickly"""
    axis: str
    """two values of one of its own options"""
    metrics: set[str]
    reaches: Callable[[dict[str, float]], bool]
    """what is said about its result in its first lines"""

    @property
    def path(self) -> str:
        return str(EXAMPLES / self.file)


GRU = Example(
    "09_char_gru.py",
    "--width 8 --length 8",
    "length=8,12",
    {"loss", "eval_loss"},
    lambda last: last["eval_loss"] < 1.15,
)
CNN = Example(
    "10_nnx_digits.py",
    "--width 2",
    "dropout=0.0,0.5",
    {"loss", "accuracy", "eval_loss", "eval_accuracy"},
    lambda last: last["eval_accuracy"] >= 0.97,
)
TRANSFORMER = Example(
    "11_equinox_transformer.py",
    "--width 12",
    "dropout=0.0,0.5",
    {"loss", "all_right", "eval_loss", "eval_all_right"},
    lambda last: last["eval_all_right"] >= 0.97,
)
ODE = Example(
    "12_neural_ode.py",
    "--width 4",
    "peak=0.001,0.01",
    {"loss", "eval_loss"},
    lambda last: last["eval_loss"] < 2e-3,
)
ALL = [GRU, CNN, TRANSFORMER, ODE]
TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def each_example(*quick: Example) -> pytest.MarkDecorator:
    each = [pytest.param(one, marks=[pytest.mark.slow] * (one not in quick), id=one.file) for one in ALL]
    return pytest.mark.parametrize("example", each)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "lapwing", *words]


def lapwing(*words: str, status: int = 0) -> str:
    """What the command says, without the seconds that a new process takes to start."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        assert main(words) == status, said.getvalue()
    return said.getvalue()


def train(example: Example, runs: Path) -> list[str]:
    return ["train", example.path, "--runs", str(runs), *example.small.split(), *TRAINING]


def killed(example: Example, runs: Path) -> Run:
    """Trains it, and kills it in the middle."""

    def rows() -> int:
        logs = [folder / "metrics.jsonl" for folder in run_folders(runs)]
        return sum(log.read_bytes().count(b"\n") for log in logs if log.exists())

    with subprocess.Popen(
        command(*train(example, runs)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + 120
        while rows() < KILLED_AFTER:
            assert process.poll() is None, process.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
    return Run.open(run_folders(runs)[0])


def last_checkpoint(run: Run) -> dict[str, np.ndarray]:
    checkpoints = Checkpoints(run.folder / "checkpoints")
    newest = checkpoints.all()[-1]
    assert newest.step == STEPS
    return checkpoints.arrays(newest)


@pytest.mark.slow
@each_example(GRU)
def test_it_is_killed_and_resumed_to_the_same_bits_and_on_the_board(example: Example, tmp_path: Path):
    run = killed(example, tmp_path / "killed")
    assert run.state == "lost"
    assert KILLED_AFTER <= len(run.columns()["step"]) < STEPS
    lapwing("resume", run.name, "--runs", str(tmp_path / "killed"), "--quiet")
    lapwing(*train(example, tmp_path / "whole"))
    whole = Run.open(run_folders(tmp_path / "whole")[0])
    assert (run.state, whole.state) == ("finished", "finished")
    columns, expected = run.columns(), whole.columns()
    assert example.metrics <= expected.keys() == columns.keys()
    for name in expected.keys() - {"time"}:
        np.testing.assert_array_equal(columns[name], expected[name], err_msg=name)
    arrays, same = last_checkpoint(run), last_checkpoint(whole)
    assert any(name.startswith("params/") for name in same)
    assert arrays.keys() == same.keys()
    for name, array in same.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    assert "They never differ" in lapwing("compare", str(run.folder), str(whole.folder))
    is_on_the_board(run, example.file, example.metrics)


def is_on_the_board(run: Run, experiment: str, metrics: set[str]) -> None:
    """Its row in the table, and its curves."""
    with serving(run.folder.parent) as board:
        until(lambda: metrics <= board.shelf.get(run.name).row["metrics"].keys())
        with board.listen() as messages:
            (row,) = (row for row in next(messages)["rows"] if row["run"] == run.name)
        assert (row["experiment"], row["state"]) == (experiment, "finished")
        with board.listen(run=run.name) as messages:
            (curves,) = next(each for each in messages if metrics <= each[0]["series"].keys())
        assert all(curves["series"][name] for name in metrics)


@each_example()
def test_it_is_swept_over_one_of_its_own_options(example: Example, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--steps", "4", "--evaluate-every", "2", "--laps-every", "0", "--metric", "eval_loss"]
    options = [*example.small.split(), *words]
    assert (
        main(
            [
                "sweep",
                example.path,
                "--grid",
                example.axis,
                *options,
                "--name",
                "two",
                "--workers",
                "1",
                "--json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["finished"], told["experiment"], told["metric"]) == (2, example.file, "eval_loss")


@each_example()
def test_it_is_checked(example: Example, capsys):
    assert main(["check", example.path, *example.small.split(), "--json"]) == 0
    found = {each["check"]: each["result"] for each in json.loads(capsys.readouterr().out)["checks"]}
    assert set(found.values()) == {"passed", "not applicable"}
    assert found["gradients"] == found["dead_parameters"] == found["can_learn"] == "passed"


@each_example()
def test_it_trains_at_once_and_reaches_what_it_says(example: Example, tmp_path: Path):
    words = command("train", example.path, "--runs", str(tmp_path))
    optimized = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    subprocess.run(words, env=optimized, check=True, capture_output=True, timeout=120)
    run = Run.open(run_folders(tmp_path)[0])
    assert example.reaches(run.latest()), run.latest()


@TORCH
@pytest.mark.slow
def test_the_loop_of_pytorch_is_swept_by_the_shell_and_on_the_board(tmp_path: Path):
    script = str(EXAMPLES / "08_pytorch.py")
    for width in ("4", "8"):
        words = [sys.executable, script, "--width", width, "--steps", "20"]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    runs = tmp_path / "runs"
    found = json.loads(lapwing("runs", "--runs", str(runs), "--sort", "best", "--json"))
    assert [each["state"] for each in found] == ["finished", "finished"]
    one, other = map(Run.open, run_folders(runs))
    assert {one.config["width"], other.config["width"]} == {4, 8}
    is_on_the_board(one, "sine-torch", {"loss", "learning_rate"})


@TORCH
@pytest.mark.parametrize("name", ["check", "train"])
def test_no_command_starts_a_loop_of_its_own(name: str):
    script = str(EXAMPLES / "08_pytorch.py")
    refused = lapwing(name, script, status=2)
    assert f"script with a loop of its own, write python {script}" in refused


@pytest.mark.parametrize("file", [each.file for each in ALL] + ["08_pytorch.py"])
def test_it_is_short(file: str):
    assert len((EXAMPLES / file).read_text().splitlines()) < 60
