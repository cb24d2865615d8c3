"""A run that is steered as a person does it: from another terminal, by the commands."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import Run, run_folders
from tests.training import start_training

ADDING = ["adding", "--width", "4", "--length", "4", "--laps-every", "0"]


def lapwing(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What the command says and its status, without the seconds that a new process takes to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def test_set_pause_resume_rollback_stop_resume(tmp_path: Path, capsys, monkeypatch):
    training, run = start_training(tmp_path, *ADDING, "--steps", "100000000")
    monkeypatch.chdir(tmp_path)

    def say(*words: str) -> tuple[int, str]:
        status = main([*words])
        out, err = capsys.readouterr()
        return status, (out + err).strip()

    try:
        assert say("set", "latest", "lr=0.001", "clip=0.5") == (
            0,
            f"{run.name}: set applied: learning_rate 0.005 → 0.001, clip 1 → 0.5",
        )
        status, said = say("set", "latest", "lr=0")
        assert (status, said.partition(": ")[2]) == (
            1,
            "set refused: learning_rate should be a positive number, but is 0.0",
        )
        assert say("set", "latest", "lr") == (
            2,
            "lapwing: 'lr' sets nothing; write NAME=VALUE, such as lr=0.01",
        )
        assert say("set", "latest") == (
            2,
            "lapwing: nothing to set; write NAME=VALUE, such as lr=0.01; "
            f"{run.name} has learning_rate=0.001, clip=0.5, weight_decay=0",
        )
        assert say("set", "latest", "l1=1")[1].endswith(
            "set refused: 'l1' cannot be set; there are learning_rate, clip, weight_decay"
        )
        assert say("set", "latest", "lr=fast") == (
            2,
            "lapwing: lr should be a positive number, but is 'fast'",
        )
        assert say("rollback", "latest", "worst") == (
            2,
            "lapwing: to should be best or the step of a checkpoint, but is 'worst'",
        )
        assert say("pause", "latest")[0] == 0
        assert run.state == "paused"
        assert say("checkpoint", "latest")[0] == 0
        status, said = say("resume", "latest", "--steps", "5")
        assert (status, said) == (2, f"lapwing: {run.name} is paused and resumes as it is, without --steps 5")
        assert say("resume", "latest")[1].startswith(f"{run.name}: resume applied: from step ")
        assert say("pause", "latest")[0] == 0
        assert say("go", "on", "latest")[1].startswith(f"{run.name}: resume applied: from step ")
        assert run.state == "running"
        assert say("resume", "latest")[0] == 2  # It is running: there is nothing to continue.
        assert say("rollback", "latest", "best")[0] == 0
        assert say("laps", "latest", "100")[0] == 0
        status, said = say("stop", "latest", "--json")
        assert (status, json.loads(said)["event"]) == (0, "applied")
        assert training.wait(30) == 130
    finally:
        training.kill()
        out, _ = training.communicate()
    assert "set learning_rate=0.001 clip=0.5: learning_rate 0.005 → 0.001, clip 1 → 0.5" in out
    assert say("set", "latest", "lr=1")[1].endswith(
        f"the run {run.name} is stopped, and only a running one takes commands"
    )
    done = int(run.latest()["step"]) + 1
    status, said = say("resume", "latest", "--steps", str(done + 5), "--allow-change", "--json")
    assert (status, json.loads(said)["steps"]) == (0, done + 5)
    assert np.isclose(run.latest()["effective_learning_rate"], 0.001)
    assert "**restarted**" in run.story


@pytest.mark.slow
def test_a_changed_config_is_refused_by_name(tmp_path: Path):
    words = ["--steps", "3", "--quiet", "--no-check"]
    assert lapwing("train", *ADDING, *words, cwd=tmp_path).returncode == 0
    refused = lapwing("resume", "latest", "--steps", "4", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.strip().endswith(
        "the config is not the one of the checkpoint: steps 3 → 4; to resume with the new one, give --allow-change "
        "(in Python: allow_change=True)"
    )
    (run,) = map(Run.open, run_folders(tmp_path / "runs"))
    about = json.loads((run.folder / "config.json").read_text())
    about["config"]["widthh"] = 5
    (run.folder / "config.json").write_text(json.dumps(about))
    refused = lapwing("resume", "latest", cwd=tmp_path)
    assert refused.stderr.strip() == "lapwing: 'widthh' is not an option any more"


def test_a_dry_run_keeps_nothing(tmp_path: Path):
    tried = lapwing("train", *ADDING, "--dry-run", cwd=tmp_path)
    assert tried.returncode == 0
    assert "finished: 2 steps in " in tried.stdout
    assert tried.stdout.endswith("That was a dry run: nothing is kept.\n")
    assert list(tmp_path.iterdir()) == []


def test_the_outcome_as_json(tmp_path: Path):
    words = ["--steps", "3", "--json", "--name", "mine", "--no-check"]
    made = lapwing("train", *ADDING, *words, cwd=tmp_path)
    outcome = json.loads(made.stdout)
    assert (made.returncode, outcome["ended"], outcome["steps"]) == (0, "finished", 3)
    assert set(outcome["last"]) == {"loss", "gradient_norm", "clipped_norm", "effective_learning_rate"}
    assert (outcome["run"], outcome["folder"]) == ("mine", "runs/mine")
    assert (tmp_path / outcome["folder"]).is_dir()
    again = lapwing("train", *ADDING, "--name", "mine", "--no-check", cwd=tmp_path)
    assert again.returncode == 2
    assert "there is a run 'mine' in runs already" in again.stderr


@pytest.mark.slow  # In every run a file that cannot grow: tests/train/test_checkpoints_trouble.py.
def test_a_disk_that_fills_up_is_one_sentence_and_what_was_written_stays(tmp_path: Path):
    """A limit on the size of files is what a full disk is to a program that writes: the kernel takes no more."""

    words = ["train", *ADDING, "--steps", "100000", "--quiet", "--no-check", "--checkpoint.every", "100"]
    limited = ["sh", "-c", 'ulimit -f 120; exec "$@"', "sh", sys.executable, "-m", "lapwing", *words]
    # It reads compiled programs, but writes none: they would be cut off too.
    reads = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
    full = subprocess.run(limited, cwd=tmp_path, env=reads, capture_output=True, text=True, timeout=120)
    assert full.returncode == 2
    sentences = full.stderr.strip().splitlines()
    assert sentences[-1].startswith("lapwing: cannot write to ")
    assert "Traceback" not in full.stderr
    (run,) = map(Run.open, run_folders(tmp_path / "runs"))
    steps = run.columns()["step"].tolist()
    assert steps == list(range(len(steps)))
    assert len(steps) > 100
    assert (
        lapwing("resume", "latest", "--steps", "600", "--allow-change", "--quiet", cwd=tmp_path).returncode
        == 0
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_sentence(tmp_path: Path):
    (tmp_path / "runs").mkdir(mode=0o500)
    refused = lapwing("train", *ADDING, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_a_mistake_is_found_before_the_first_step_and_leaves_no_run(tmp_path: Path, monkeypatch, capsys):
    """The data of step 0 at every step, as in the journal that trained 10,000 steps on 50 images."""
    import jax

    from lapwing.experiments import adding

    same = adding.sequences
    monkeypatch.setattr(adding, "sequences", lambda key, *sizes: same(jax.random.key(0), *sizes))
    monkeypatch.chdir(tmp_path)
    assert main(["train", *ADDING]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lapwing: batch 1 is the same as batch 0")
    assert said.endswith("`--no-check` skips the checks.\n")
    assert not (tmp_path / "runs").exists()
    assert main(["train", *ADDING, "--steps", "2", "--quiet", "--no-check"]) == 0
