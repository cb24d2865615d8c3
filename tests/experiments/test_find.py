"""What a person may write for an experiment, and what a file may hold."""

import dataclasses
import sys
from pathlib import Path

import pytest

from lapwing.core import LapwingError
from lapwing.experiments import REGISTRY, Source, execute, find, known, located, short
from lapwing.task import Task
from lapwing.train import FitConfig

TASK = """
import jax, jax.numpy as jnp
from lapwing.task import Task

def task_of(width=2):
    return Task(
        init=lambda key: jnp.zeros(width),
        data=lambda key, step: jax.random.normal(key, (4, width)),
        loss=lambda w, x: (jnp.mean((x @ (w - 1)) ** 2), {}),
    )
"""
FILE = (
    '"""Fits a plane.\n\nAt length."""\nfrom dataclasses import dataclass, field\n'
    + TASK
    + '''
@dataclass
class Layer:
    depth: int = 2
    """how deep"""

@dataclass
class Config:
    width: int
    """number of inputs"""
    learning_rate: float = 0.5
    scale: float = 1.0  # size of the inputs
    layer: Layer = field(default_factory=Layer)
    words: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.width < 1:
            raise ValueError("width is too small")

def build(config):
    assert type(config) is Config and type(config.layer) is Layer
    return task_of(config.width)

@dataclass(frozen=True)
class Small:
    height: int = 3

def small(config: Small):
    assert type(config) is Small
    return task_of(config.height)

def alone():
    return task_of()

ready = task_of()

class Space:
    Config = Small
    build = staticmethod(small)
'''
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "net.py").write_text(FILE)
    return tmp_path


def refusal(name: str) -> str:
    with pytest.raises(LapwingError) as error:
        find(name)
    assert "\n" not in str(error.value)
    return str(error.value)


def write(content: str, name: str = "other.py") -> str:
    Path(name).write_text(content)
    return name


def test_a_built_in_name():
    found = find("adding")
    assert (found.name, found.target, found.source) == ("adding", "adding", None)
    assert found.about == REGISTRY.about()["adding"]
    assert found.Config is REGISTRY.load("adding").Config
    assert find("adversarial").evaluate_run is not None


def test_a_file(folder: Path):
    found = find("net.py")
    assert (found.name, found.target, found.about) == ("net.py", str(folder / "net.py"), "Fits a plane.")
    assert found.source == Source(folder / "net.py", FILE.encode())
    assert isinstance(found.build(found.Config(width=3)), Task)
    assert execute(found.source) is execute(Source.read("net.py")), "the file was executed twice"


def test_the_options_are_theirs_and_those_of_fit():
    config = find("net.py").Config(width=3, steps=7)
    assert isinstance(config, FitConfig)
    assert (config.steps, config.learning_rate, config.scale, config.layer.depth) == (7, 0.5, 1.0, 2)
    assert dataclasses.replace(config, steps=9).width == 3
    assert config.words is not find("net.py").Config(width=3).words
    with pytest.raises(TypeError, match="width"):
        find("net.py").Config()
    with pytest.raises(ValueError, match="width is too small"):
        find("net.py").Config(width=0)
    with pytest.raises(ValueError, match="steps should be at least 1"):
        find("net.py").Config(width=1, steps=0)


def test_a_value_of_both_reaches_both():
    write(FILE + "\ndef build(config):\n    return config\n")
    theirs = execute(Source.read("other.py")).Config
    options = find("other.py").Config(width=1, learning_rate=0.25)
    from lapwing.experiments._options import instance_of

    assert (options.learning_rate, instance_of(theirs, options).learning_rate) == (0.25, 0.25)


def test_the_config_may_be_changed_by_build_without_changing_the_options():
    code = FILE.replace(
        "    return task_of(config.width)", "    config.layer.depth = 9\n    return task_of()"
    )
    found = find(write(code))
    options = found.Config(width=1)
    found.build(options)
    assert options.layer.depth == 2


@pytest.mark.parametrize("name", ["small", "Space", "alone", "ready"])
def test_something_in_a_file(name: str, folder: Path):
    found = find(f"net.py:{name}")
    assert (found.name, found.target) == (f"net.py:{name}", f"{folder}/net.py:{name}")
    options = found.Config()
    assert isinstance(found.build(options), Task)
    assert hasattr(options, "height") == (name in ("small", "Space"))


@pytest.mark.parametrize(
    ("code", "width"),
    [
        ("def build():\n    return task_of()", None),
        ("def build(config):\n    return task_of(config.steps)", None),
        ("def build(config=None):\n    return task_of(config.steps)", None),
        ("def build(width=2, *rest, **more):\n    return task_of(width)", None),
        ("task = task_of()", None),
        (
            "from lapwing.train import FitConfig\nfrom dataclasses import dataclass\n"
            "@dataclass(frozen=True)\nclass Config(FitConfig):\n    width: int = 8\n"
            "def build(config):\n    return task_of(config.width)",
            8,
        ),
        (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass Wide:\n    width: int = 9\n"
            "def build(config: Wide):\n    assert type(config) is Wide\n    return task_of(config.width)",
            9,
        ),
    ],
)
def test_what_a_file_may_hold(code: str, width: int | None):
    lines = code.split("\n")
    first = [lines.pop(0)] if "__future__" in lines[0] else []
    found = find(write("\n".join([*first, TASK, *lines])))
    assert getattr(found.Config(), "width", None) == width
    assert isinstance(found.build(found.Config()), Task)


def test_a_module(folder: Path):
    (folder / "parts").mkdir()
    write(FILE, "parts/deep.py")
    found = find("parts.deep:small")
    assert (found.name, found.target) == ("parts.deep:small", "parts.deep:small")
    assert found.source
    assert found.source.path == folder / "parts" / "deep.py"
    assert isinstance(found.build(found.Config()), Task)


def test_neighbours_can_be_imported():
    write("WIDTH = 5\n", "sizes_of_net.py")
    found = find(write("import sizes_of_net\n" + TASK + "task = task_of(sizes_of_net.WIDTH)"))
    assert found.build(found.Config()).init(None).shape == (5,)


def test_a_file_may_have_the_name_of_a_module():
    found = find(write(TASK + "task = task_of()", "random.py"))
    import random

    assert isinstance(found.build(found.Config()), Task)
    assert random.random() < 1


def test_a_file_that_changed_is_executed_again_and_nothing_stale_is_used():
    for width in (2, 3, 4):  # Of one size, within one second.
        found = find(write(TASK + f"task = task_of({width})"))
        assert found.build(found.Config()).init(None).shape == (width,)
    assert not Path("__pycache__").exists()


def test_a_content_is_executed_without_its_file(tmp_path: Path):
    gone = Source(tmp_path / "elsewhere" / "gone.py", FILE.encode())
    found = find(str(gone.path), Source.from_json(gone.to_json()))
    assert found.source == gone
    assert isinstance(found.build(found.Config(width=1)), Task)
    assert "number of inputs" in (found.Config.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("addin", "'addin' is not an experiment; did you mean adding?"),
        ("net", "'net' is not an experiment; did you mean net.py?"),
        ("nett.py", "there is no file 'nett.py'; `lapwing new nett.py` writes one to start from"),
        ("nett.py:small", "there is no file 'nett.py'; `lapwing new nett.py` writes one to start from"),
        ("net.py:smal", "there is no 'smal' in net.py; did you mean small?"),
        ("net.py:Layer", "net.py:Layer should have build(config) that returns a lapwing.task.Task, or a "),
        (
            "no.such.module:x",
            "there is no module 'no.such.module'; write package.module:name of an installed",
        ),
        ("json.nothing:x", "there is no module 'json.nothing'; write package.module:name of an installed"),
        (".py", "cannot read '.py': Is a directory"),
    ],
)
def test_what_is_not_there_gets_one_sentence(name: str, sentence: str, folder: Path):
    (folder / ".py").mkdir()
    assert refusal(name).startswith(sentence)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "def bild(): pass",
            "other.py should have build(config) that returns a lapwing.task.Task, or a task that is one; did you mean "
            "bild?",
        ),
        (
            "import argparse\nargparse.ArgumentParser().parse_args()\nraise SystemExit(3)",
            "other.py should have build(config) that returns a lapwing.task.Task, or a task that is one; if it is a "
            "script with a loop of its own, write python other.py",
        ),
        (
            "class Config:\n    width: int = 1\ndef build(c): pass",
            "Config in other.py should be a dataclass; write",
        ),
        (
            "from lapwing.train import FitConfig\nclass Config(FitConfig):\n    width: int = 1\ndef build(c): pass",
            "Config in other.py should be a dataclass; write @dataclass (frozen=True if it inherits FitConfig)",
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass Config:\n    schedule: str = ''\ndef build(c): pass",
            "schedule in Config of other.py is str, but Lapwing's option of that name is Schedule; rename it",
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass Config:\n    mode: str = 'max'\ndef build(c): pass",
            "mode in Config of other.py is str, but Lapwing's option of that name is Literal['min', 'max']; rename it, "
            "or make it Literal['min', 'max']",
        ),
        (
            "def build(config, width): pass",
            "build in other.py should take the config alone, but needs config, width",
        ),
        (
            "def build(*, config): pass",
            "build in other.py should take the config alone, but needs config; make",
        ),
    ],
)
def test_what_a_file_lacks_is_said(code: str, sentence: str):
    assert refusal(write(code)).startswith(sentence)


def test_an_equal_type_is_the_same_option():
    """Equal types need not be one object: typing forgets those that it has made."""
    code = "    mode: Literal['max', 'min'] = 'max'\ndef build(c): pass"
    head = "from dataclasses import dataclass\nfrom typing import Literal\n@dataclass\nclass Config:\n"
    assert find(write(head + code)).Config().mode == "max"


def test_what_build_returns_is_looked_at():
    found = find(write("def build(): return {}"))
    with pytest.raises(
        LapwingError, match=r"build in other.py should return a lapwing.task.Task, not a dict"
    ):
        found.build(found.Config())


def test_an_exception_of_the_file_is_the_users_own():
    with pytest.raises(ZeroDivisionError):
        find(write("task = 1 / 0"))
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        find(write("import not_there\nfrom here import build"))


def test_names_of_other_packages(folder: Path, capsys):
    from lapwing.cli import main

    info = folder / "birds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1.0\nSummary: flying\n")
    (info / "entry_points.txt").write_text(
        "[lapwing.experiments]\nbirds = birds_nest:small\nadding = birds_nest\n"
    )
    write(FILE, "birds_nest.py")
    sys.path.insert(0, str(folder))
    found = find("birds")
    assert (found.name, found.target) == ("birds", "birds")
    assert found.source
    assert isinstance(found.build(found.Config()), Task)
    assert find("adding").source is None, "a package took a name of Lapwing's own"
    assert (known()["birds"].about, known()["birds"].package) == ("flying", "birds")
    assert main(["list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("birds")] == [
        ["birds", "flying", "birds"]
    ]
    second = folder / "eagles-1.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: eagles\nVersion: 1.0\n")
    (second / "entry_points.txt").write_text("[lapwing.experiments]\nbirds = eagles:build\n")
    assert refusal("birds") == "'birds' is added by 2 packages; write birds_nest:small or eagles:build"


def test_a_name_with_and_without_its_folder(folder: Path):
    assert located("net.py:deep") == f"{folder}/net.py:deep"
    assert short(located("net.py:deep")) == "net.py:deep"
    assert located("adding") == short("adding") == "adding"


def test_a_long_diff_is_cut():
    a, b = (Source(Path("x.py"), "\n".join(f"{word} {i}" for i in range(99)).encode()) for word in ("a", "b"))
    lines = a.diff(b).splitlines()
    assert len(lines) == 41
    assert lines[-1] == "... 161 more lines of difference"
