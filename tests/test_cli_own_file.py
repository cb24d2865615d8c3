"""A file of one's own in every command, and what a refusal leaves behind: nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import Run, run_folders
from lapwing.train import Checkpoints
from tests.slow import some

FILE = '''"""Fits a plane."""
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

import heights
from lapwing.task import Task


@dataclass
class Plane:
    tilt: float = 1.0
    """how steep it is"""


@dataclass
class Config:
    width: int
    """number of inputs"""
    steps: int = 8
    learning_rate: float = 0.1
    centre: bool = True
    """let the inputs have a mean of 0"""
    plane: Plane = field(default_factory=Plane)

    def __post_init__(self):
        if self.width == 13:
            raise ValueError("13 is unlucky")


def build(config: Config) -> Task:
    if config.width > 100:
        raise MemoryError("too wide")
    return Task(
        init=lambda key: {"w": jnp.zeros(config.width)},
        data=lambda key, step: jax.random.normal(key, (4, config.width)),
        loss=lambda params, x: (jnp.mean((x @ (params["w"] - config.plane.tilt)) ** 2), {}),
        evaluate=lambda params, key: {"distance": jnp.max(jnp.abs(params["w"] - heights.TOP))},
    )
'''
FAST = ["--laps-every", "0", "--quiet"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("heights", None)
    (tmp_path / "plane.py").write_text(FILE)
    (tmp_path / "heights.py").write_text("TOP = 1.0\n")
    return tmp_path


def train(*words: str) -> Run:
    assert main(["train", "plane.py", "--width", "2", "--no-check", *FAST, *words]) == 0
    return Run.open(run_folders("runs")[0])


def everything(run: Run) -> dict[str, bytes]:
    files = [path for path in sorted(run.folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in files}


def refusal(capsys, *words: str) -> str:
    status = main(words)
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    return said.err.rstrip("\n")


def test_a_run_keeps_its_file(capsys, folder: Path):
    run = train()
    assert (run.experiment, run.state, run.config["width"]) == ("plane.py", "finished", 2)
    assert run.source == {
        "target": str(folder / "plane.py"),
        "path": str(folder / "plane.py"),
        "sha256": run.source["sha256"] if run.source else "",
        "copy": "source/plane.py",
    }
    assert (run.folder / "source" / "plane.py").read_text() == FILE
    assert main(["show", "latest"]) == 0
    assert f"source       {folder}/plane.py" in re.sub(" {2,}", "       ", capsys.readouterr().out)
    assert main(["report", "latest"]) == 0
    assert f"{folder}/plane.py" in (run.folder / "report.html").read_text()


def test_help_shows_the_options_of_the_file(capsys):
    with pytest.raises(SystemExit):
        main(["train", "plane.py", "--help"])
    said = " ".join(re.sub("[│╭╮╰╯]", " ", capsys.readouterr().out).split())
    assert "Fits a plane." in said
    assert "--width INT number of inputs (required)" in said
    assert "--steps INT number of updates (default: 8)" in said
    assert "--centre, --no-centre let the inputs have a mean of 0 (default: True)" in said
    assert "--plane.tilt FLOAT how steep it is (default: 1.0)" in said
    assert "--stop.patience INT" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plane.py"], "missing from lapwing train plane.py: --width INT number of inputs (required)"),
        (["plane.py", "--width", "x"], "--width takes an integer, not 'x'"),
        (["plane.py", "--width", "13"], "plane.py refuses its options: 13 is unlucky"),
        (["plane.py", "--width", "2", "--steps", "0"], "steps should be at least 1, but is 0"),
        (["plane.py", "--width", "2", "--stop.below", "nan"], "stop.below should be a number, but is nan"),
        (["plane.py:x"], "there is no 'x' in plane.py; there are Plane, Config, build"),
        (["other.py"], "quiet in Config of other.py is also an option of `lapwing train`; rename the field"),
        (["gone.py"], "there is no file 'gone.py'; `lapwing new gone.py` writes one to start from"),
    ],
)
def test_a_start_that_is_refused_leaves_no_run(capsys, words: list[str], sentence: str):
    Path("other.py").write_text(FILE.replace("centre: bool", "quiet: bool"))
    assert refusal(capsys, "train", *words).startswith(f"lapwing: {sentence}")
    assert not Path("runs").exists()


def test_a_build_that_fails_leaves_no_run_and_shows_its_line():
    words = [sys.executable, "-m", "lapwing", "train", "plane.py", "--width", "101"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'plane.py", line 34, in build\n    raise MemoryError("too wide")\n' in done.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "end"),
    some(
        [
            (
                "def build(:\n",
                'plane.py", line 1\n    def build(:\n              ^\nSyntaxError: invalid syntax',
            ),
            ("import heigths\n" + FILE, "import heigths\nModuleNotFoundError: No module named 'heigths'"),
            (
                FILE.replace("jnp.zeros(", "jnp.zeos("),
                "AttributeError: module 'jax.numpy' has no attribute 'zeos'",
            ),
        ],
        0,
        1,
    ),
)
def test_the_traceback_of_a_file_begins_in_it(text: str, end: str):
    Path("plane.py").write_text(text)
    words = [sys.executable, "-m", "lapwing", "train", "plane.py", "--width", "2"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert end in done.stderr
    assert "named.py" not in done.stderr
    assert "_commands" not in done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "taken",
            "there is a run 'taken' in runs already; choose another name, or continue it with `lapwing resume taken`",
        ),
        ("a/b", "a run's name should be one word without slashes or a leading dot, not 'a/b'"),
        ("", "a run's name should be one word without slashes or a leading dot, not ''"),
    ],
)
def test_a_name_is_refused_before_anything_is_built(capsys, name: str, sentence: str):
    with Run.create("a", runs_dir="runs", name="taken"):
        pass
    # A build of this width would fail.
    assert refusal(capsys, "train", "plane.py", "--width", "101", "--name", name).startswith(
        f"lapwing: {sentence}"
    )


def test_a_check_that_fails_leaves_no_run(capsys):
    Path("plane.py").write_text(
        FILE.replace("jax.random.normal(key,", "jax.random.normal(jax.random.key(0),")
    )
    assert "batch 1 is the same as batch 0" in refusal(capsys, "train", "plane.py", "--width", "2")
    assert not Path("runs").exists()


def test_a_task_that_cannot_be_trained_leaves_no_run_without_the_check_either(capsys):
    Path("plane.py").write_text(FILE.replace("(jnp.mean((x", "(((x"))
    words = ["train", "plane.py", "--width", "2", "--no-check", *FAST]
    assert "the loss should be a scalar, but has shape (4,)" in refusal(capsys, *words)
    assert run_folders("runs") == []
    words[4:4] = ["--devices", "64"]
    assert "64" in refusal(capsys, *words)
    assert run_folders("runs") == []


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_run_of_another_loop_is_continued_by_its_script(capsys, command: str):
    with Run.create("plane", name="mine"):
        pass
    said = refusal(capsys, command, "mine")
    assert said.startswith(
        "lapwing: mine is a run of 'plane', which is not an experiment; a script with a loop of its own"
    )


REFUSED = {
    "an option": (["--steps", "9"], "the config is not the one of the checkpoint: steps 8 → 9"),
    "a bad option": (["--steps", "0"], "steps should be at least 1, but is 0"),
    "an unknown option": (["--stpes", "9"], "unrecognized options: --stpes, 9"),
    "another state": (["--width", "3", "--allow-change"], "is of another state: params/w is float32[2]"),
    "devices": (["--devices", "64"], "64"),
    "no file": (["--source", "gone.py"], "there is no file 'gone.py'"),
    "no Python file": (["--source", "gone"], "--source takes a file that ends in .py, not 'gone'"),
}


@pytest.mark.slow
def test_a_refused_resume_leaves_the_record_as_it_was(capsys):
    run = train()
    before = everything(run)
    for words, sentence in REFUSED.values():
        assert sentence in refusal(capsys, "resume", run.name, *words)
        assert everything(run) == before, words
    run.folder.joinpath("checkpoints").rename("aside")
    run.folder.joinpath("checkpoints").mkdir()
    for path in Path("aside").iterdir():
        (run.folder / "checkpoints" / path.name).write_bytes(path.read_bytes()[:-1])
    before = everything(run)
    assert "can be used" in refusal(capsys, "resume", run.name)
    assert everything(run) == before
    assert Run.open(run.folder).state == "finished"


def test_a_file_that_changed_is_shown_and_refused_unless_allowed(capsys, folder: Path):
    run = train()
    before = everything(run)
    Path("plane.py").write_text(FILE.replace("tilt: float = 1.0", "tilt: float = 2.0"))
    said = refusal(capsys, "resume", run.name)
    assert "-    tilt: float = 1.0\n+    tilt: float = 2.0\n" in said
    assert said.splitlines()[-1].startswith(
        f"lapwing: {folder}/plane.py is not the file that {run.name} was trained"
    )
    assert everything(run) == before
    assert main(["resume", run.name, "--allow-change", "--steps", "12", *FAST]) == 0
    again = Run.open(run.folder)
    assert (again.state, again.config["steps"]) == ("finished", 12)
    assert (run.folder / "source" / "plane.py").read_text() == Path("plane.py").read_text()
    (old,) = run.folder.glob("source/plane-*.py")
    assert old.read_text() == FILE
    assert re.search(r"restarted.*plane.py has changed: sha256 ", again.story, re.DOTALL)
    assert main(["resume", run.name, "--steps", "12", "--quiet"]) == 0, "what was allowed is the file now"


def test_an_option_that_the_file_no_longer_has(capsys):
    run = train()
    Path("plane.py").write_text(FILE.replace("centre: bool", "middle: bool"))
    assert main(["resume", run.name, "--allow-change", "--steps", "9", *FAST]) == 0
    assert "middle" in Run.open(run.folder).config


@pytest.mark.slow
def test_a_file_that_is_gone_is_never_taken_from_the_run_unless_it_is_named(capsys, folder: Path):
    run = train()
    before, recorded = everything(run), run.source
    Path("plane.py").rename("moved.py")
    copy = f"runs/{run.name}/source/plane.py"
    said = refusal(capsys, "resume", run.name)
    assert said == (
        f"lapwing: the file {folder}/plane.py of {run.name} is not there any more; to use the copy in the run: "
        f"--source {copy}"
    )
    assert everything(run) == before
    for source in (copy, "moved.py"):
        assert main(["resume", run.name, "--source", source, "--quiet"]) == 0
    words = ["resume", run.name, "--allow-change", "--quiet"]
    assert main([*words, "--steps", "9", "--source", copy]) == 0
    assert Run.open(run.folder).source == recorded, "the copy would be executed without being named"
    assert main([*words, "--steps", "10", "--source", "moved.py"]) == 0
    assert (Run.open(run.folder).source or {})["path"] == str(folder / "moved.py")
    assert main(["resume", run.name, "--quiet"]) == 0


def test_something_in_the_file_is_resumed_by_its_name():
    Path("plane.py").write_text(FILE + "\n\ndef flat(config: Config) -> Task:\n    return build(config)\n")
    assert main(["train", "plane.py:flat", "--width", "2", "--no-check", *FAST]) == 0
    (folder,) = run_folders("runs")
    assert Run.open(folder).experiment == "plane.py:flat"
    assert main(["resume", folder.name, "--quiet"]) == 0
    Path("plane.py").rename("moved.py")
    assert main(["resume", folder.name, "--quiet", "--source", "moved.py"]) == 0


def test_evaluate_takes_the_best_or_another_checkpoint(capsys):
    run = train("--steps", "300", "--log-every", "10", "--checkpoint.every", "100", "--learning-rate", "0.3")
    steps = {each.step for each in Checkpoints(run.folder / "checkpoints").all()}
    newest = Checkpoints(run.folder / "checkpoints").all()[-1]
    best = Checkpoints(run.folder / "checkpoints").find(newest.record["best"]).step
    assert best in steps
    for words, step in (([], best), (["--best"], best), (["--newest"], 300), (["--step", "300"], 300)):
        assert main(["evaluate", run.name, "--json", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["run"], told["step"]) == (run.name, step)
    ends = [event for event in run.events() if event["event"] == "finished"]
    assert told["eval_distance"] == pytest.approx(ends[-1]["eval_distance"], abs=1e-6)
    assert main(["evaluate", run.name]) == 0
    assert re.search(r"^eval_distance  [\d.e-]+$", capsys.readouterr().out, re.MULTILINE)
    assert "evaluated at step 300: eval_distance " in Run.open(run.folder).story
    assert "has no checkpoint of step 7; there are: " in refusal(capsys, "evaluate", run.name, "--step", "7")
    assert "--best and --newest are two checkpoints" in refusal(
        capsys, "evaluate", run.name, "--best", "--newest"
    )


def test_a_task_without_an_evaluation_says_so(capsys):
    Path("plane.py").write_text(re.sub("        evaluate=.*\n", "", FILE))
    run = train("--steps", "2")
    assert "the task of plane.py has no evaluation; give its Task evaluate=" in refusal(
        capsys, "evaluate", run.name
    )


@pytest.mark.slow
def test_two_runs_of_different_files_are_told_apart(capsys):
    a = train()
    Path("plane.py").write_text(FILE.replace("** 2", "** 4"))
    b = train()
    assert main(["compare", a.name, b.name]) == 0
    copies = [f"runs/{run.name}/source/plane.py" for run in (a, b)]
    assert (
        f"They were trained from different files: diff {copies[0]} {copies[1]}\n" in capsys.readouterr().out
    )
    assert main(["compare", a.name, b.name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"]["source"] == [
        run.source["sha256"] for run in (a, b) if run.source
    ]
    assert main(["compare", a.name, a.name]) == 0
    assert "different files" not in capsys.readouterr().out


def test_check_and_explain(capsys):
    assert main(["check", "plane.py", "--width", "2", "--only", "fresh_data", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["experiment"], told["checks"][0]["result"]) == ("plane.py", "passed")
    assert main(["explain", "plane.py", "--width", "2", "--no-compiled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] is None
    assert main(["explain", "adding", "--width", "2", "--length", "4", "--no-compiled"]) == 0
    assert "one product over all steps" in capsys.readouterr().out
    said = refusal(capsys, "check", "plane.py", "--width", "2", "--budget-s", "nan")
    assert said == "lapwing: --budget-s should be at least 0 seconds, but is nan"


@pytest.mark.parametrize(
    "command", ["train adding", "sweep adding", "check adding", "bench gru", "explain adding"]
)
def test_no_flag_says_the_opposite_of_its_help(capsys, command: str):
    """An option that begins with --no- is the second of a pair, or is about what it leaves out."""
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    options = re.findall(r"^\W*?(--[\w.-]+(?:, --[\w.-]+)?)", capsys.readouterr().out, re.MULTILINE)
    alone = [option for option in options if option.startswith("--no-")]
    assert alone == (["--no-check"] if command.startswith("train") else [])


def test_the_model_of_a_run_is_made_by_the_file():
    Path("plane.py").write_text(
        FILE + "\n\ndef model(config, params):\n    return type(config), params['w']\n"
    )
    run = train("--steps", "2")
    kind, weights = run.model()
    assert (kind.__mro__[1:], weights.shape) == ((object,), (2,)), "it got the options, not its own config"
