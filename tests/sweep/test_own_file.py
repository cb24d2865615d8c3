"""Sweeps of a file: every worker trains what the sweep has read, whatever becomes of the file."""

import json
import sys
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.experiments import Source
from lapwing.journal import Run
from lapwing.sweep import Job, LocalEngine, Measure, SweepError, run_job

FILE = '''"""Fits a plane."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lapwing.task import Task

SLOPE = 1.0


@dataclass
class Config:
    width: int
    steps: int = 3


def build(config: Config) -> Task:
    return Task(
        init=lambda key: jnp.zeros(config.width),
        data=lambda key, step: jax.random.normal(key, (4, config.width)),
        loss=lambda w, x: (jnp.mean((x @ (w - SLOPE)) ** 2), {"size": jnp.max(w)}),
        evaluate=lambda w, key: {"far": jnp.max(jnp.abs(w - SLOPE))},
    )
'''
WORDS = ["sweep", "plane.py", "--grid", "width=1,2", "--laps-every", "0", "--name", "wide"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "plane.py").write_text(FILE)
    return tmp_path


@pytest.mark.slow
def test_a_sweep_of_a_file_and_what_it_refuses(capsys, folder: Path):
    assert main([*WORDS, "--workers", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["finished"], told["experiment"], told["metric"]) == (2, "plane.py", "loss")
    run = Run.open("runs/wide/width=2,seed=0")
    assert (run.experiment, run.config["width"]) == ("plane.py", 2)
    assert run.source
    assert run.source["path"] == str(folder / "plane.py")
    assert (run.folder / run.source["copy"]).read_text() == FILE
    described = json.loads(Path("runs/wide/sweep.json").read_text())
    assert described["experiment"] == str(folder / "plane.py")
    assert Path("runs/wide", described["source"]["copy"]).read_text() == FILE

    Path("plane.py").write_text(FILE.replace("SLOPE = 1.0", "SLOPE = 2.0"))
    for words in (WORDS, ["sweep", "--resume", "runs/wide"]):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith(
            "lapwing: plane.py has changed since this sweep began (diff runs/wide/source/plane.py "
        )
    assert main(["sweep", "--resume", "runs/wide", "--allow-change", "--quiet"]) == 0
    Path("plane.py").unlink()
    assert main(["sweep", "--resume", "runs/wide"]) == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_trains_the_content_that_it_was_given(tmp_path: Path):
    source = Source(tmp_path / "on another machine" / "plane.py", FILE.encode())
    Path("plane.py").unlink()
    job = Job(
        str(source.path), str(tmp_path / "runs"), {"a": {"width": 2, "steps": 2}}, source=source.to_json()
    )
    (outcome,) = run_job(job)
    assert outcome.ended == "finished", outcome.message
    run = Run.open(tmp_path / "runs" / "a")
    assert (run.folder / "source" / "plane.py").read_text() == FILE


def test_a_metric_that_the_runs_will_not_have_is_refused_before_the_first(capsys):
    assert main([*WORDS, "--metric", "eval_fra"]) == 2
    assert capsys.readouterr().err == (
        "lapwing: 'eval_fra' is not a metric of these runs; did you mean eval_far?\n"
    )
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--goal", "nan"], "the goal of a sweep should be a number, but is nan; leave it out to have none"),
        (
            ["--workers", "0"],
            "a sweep needs at least 1 worker, not 0; leave it out for one on each core, or GPU",
        ),
        (["--workers", "-2"], "a sweep needs at least 1 worker, not -2; leave it out for one on each core"),
    ],
)
def test_numbers_that_are_none_are_refused(capsys, words: list[str], sentence: str):
    assert main([*WORDS, *words]) == 2
    assert capsys.readouterr().err.startswith(f"lapwing: {sentence}")
    assert not Path("runs").exists()


def test_the_same_in_python():
    with pytest.raises(SweepError, match="at least 1 worker"):
        LocalEngine(0)
    with pytest.raises(SweepError, match="but is nan"):
        Measure("loss", goal=float("nan"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_on_ray(capsys, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    assert main([*WORDS, "--engine", "ray", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["finished"], told["failed"]) == (2, [])
    assert (Path("runs/wide/width=1,seed=0/source/plane.py")).read_text() == FILE
