import json
import os
import platform
import subprocess
from pathlib import Path

import jax
import pytest

from lapwing.journal import JournalError, Run
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


def test_no_secret_of_the_command_line_or_the_variables_is_recorded(tmp_path: Path, monkeypatch):
    """In no file of a run: not when it starts, not when it is resumed by another command."""
    monkeypatch.setattr(
        "sys.argv", ["train.py", "--api-key=hush-1", "--db", "pg://me:hush-2@host/x", "--token", "hush-3"]
    )
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "gs://hush-4")
    monkeypatch.setenv("JAX_TOKEN", "hush-5")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=http://me:hush-6@host/")
    monkeypatch.setenv("WANDB_API_KEY", "hush-7")
    run = Run.create("adding", {"steps": 5}, runs_dir=tmp_path)
    run.end("stopped", "")
    monkeypatch.setattr("sys.argv", ["train.py", "--api-key", "hush-8"])
    with Run.reopen(run.folder) as again:
        again.note("on")
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert {"environment.json", "journal.md", "events.jsonl"} <= {path.name for path in files}
    for path in files:
        assert b"hush" not in path.read_bytes(), path
    assert "--api-key=REDACTED" in (run.folder / "journal.md").read_text()
    assert run.environment["variables"]["XLA_FLAGS"] == "--xla_dump_to=http://REDACTED@host/"


def test_what_an_earlier_version_recorded_is_neither_shown_nor_copied(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py"])
    run = Run.create("adding", {}, runs_dir=tmp_path)
    run.end("stopped", "")
    old = json.loads((run.folder / "environment.json").read_text())
    old |= {"command": ["train.py", "--token=hush"], "variables": {"JAX_CACHE": "hush", **old["variables"]}}
    (run.folder / "environment.json").write_text(json.dumps(old))
    assert Run.open(run.folder).environment["command"] == ["train.py", "--token=REDACTED"]
    with Run.reopen(run.folder) as again:
        assert again.elsewhere == {}
        again.note("on")
    assert "hush" not in (run.folder / "journal.md").read_text() + (run.folder / "events.jsonl").read_text()


@pytest.mark.parametrize("config", [{"api_key": "hush"}, {"db": {"password": "hush"}}])
def test_a_secret_is_no_setting(tmp_path: Path, config: dict):
    with pytest.raises(
        JournalError, match="looks like a secret, and a run records its settings; read it from an"
    ):
        Run.create("adding", config, runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_that_only_sound_like_secrets_are_kept(tmp_path: Path):
    config = {
        "key": "label",
        "mask_token": "[MASK]",
        "tokens": 512,
        "api_key": None,
        "password_file": "a.txt",
    }
    assert Run.create("adding", config, runs_dir=tmp_path).config == config
