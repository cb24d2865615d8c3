"""`lapwing new`: what it writes trains at once."""

import json
import sys
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.experiments import find
from lapwing.journal import Run

KINDS = ["gru", "transformer", "image", "flax", "equinox"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


# The others are of the same shape: a model of another library, another loss.
LONGER = ("transformer", "image", "flax", "equinox")


@pytest.mark.parametrize(
    "like", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in LONGER)) for kind in KINDS]
)
def test_it_trains_at_once_and_learns(like: str, capsys):
    name = f"my_{like}.py"
    assert main(["new", name, "--like", like]) == 0
    assert capsys.readouterr().out == f"{name} is written; train it with: lapwing train {name}\n"
    text = Path(name).read_text()
    assert len(text.splitlines()) < 40
    assert f"lapwing train {name} --width" in text
    assert main(["train", name, "--laps-every", "0", "--json", "--steps", "60"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["last"]["loss"] < 0.8 * Run.open(told["folder"]).columns()["loss"][0]
    assert told["evaluation"]


def test_the_default_is_the_gru():
    assert main(["new", "a.py"]) == 0
    assert main(["new", "b.py", "--like", "gru"]) == 0
    assert Path("a.py").read_text().replace("a.py", "") == Path("b.py").read_text().replace("b.py", "")


@pytest.mark.slow
def test_an_own_option_can_be_checked_and_swept():
    assert main(["new", "mine.py"]) == 0
    assert main(["check", "mine.py", "--width", "4", "--only", "dead_parameters", "fresh_data"]) == 0
    experiment = find("mine.py")
    assert {"width", "steps", "clip"} <= {*vars(experiment.Config(width=4))}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["there.py"], "'there.py' exists already; choose another name, or give --force to replace it"),
        (["net"], "the file should end in .py, but is 'net'; write net.py"),
        (["flax.py"], "flax.py would hide the module flax; choose another name"),
        (["no/net.py"], "cannot write 'no/net.py': No such file or directory"),
        (["net.py", "--like", "lstm"], "--like"),
    ],
)
def test_what_it_will_not_write(capsys, words: list[str], sentence: str):
    Path("there.py").write_text("mine")
    assert main(["new", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert Path("there.py").read_text() == "mine"
    assert [path.name for path in Path().iterdir()] == ["there.py"]


def test_a_file_is_replaced_if_that_is_said(capsys):
    Path("there.py").write_text("mine")
    assert main(["new", "there.py", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": "there.py", "like": "gru"}
    assert "def build" in Path("there.py").read_text()
