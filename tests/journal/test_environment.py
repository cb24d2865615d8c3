import os
import platform
import subprocess
from pathlib import Path

import jax
import pytest

from lapwing.journal._environment import environment


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True)


def test_it_names_versions_machine_and_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/lapwing", "train", "adding"])
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    found = environment(device="cpu")
    assert found["versions"]["jax"] == jax.__version__
    assert found["python"] == platform.python_version()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["command"] == ["lapwing", "train", "adding"]
    assert found["device"] == "cpu"
    assert found["variables"]["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    assert not any(name.startswith("PATH") for name in found["variables"])


def test_it_tells_the_commit_and_whether_files_differ_from_it(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert environment()["git"] is None
    git("init", "-q")
    assert environment()["git"] is None
    Path("a.txt").write_text("a")
    git("add", "a.txt")
    git("commit", "-q", "-m", "first")
    clean = environment()["git"]
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    Path("runs").mkdir()
    Path("runs/new").write_text("an untracked file is no change of the code")
    assert environment()["git"] == clean
    Path("a.txt").write_text("b")
    assert environment()["git"] == {**clean, "dirty": True}


@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_without_git_there_is_no_commit(monkeypatch, path: str):
    monkeypatch.setenv("PATH", path)
    assert environment()["git"] is None
