"""What a run folder has lost is said: while the run is trained, and when it is resumed."""

import json
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import CheckpointError, FilesLostError, Run
from lapwing.task import Callback
from lapwing.train import Checkpointing, Checkpoints, ConfigError, FitConfig, Stop, fit

from .tasks import line, same_bits

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5}


def train(run, task=None, steps=40, callbacks=(), allow_change=False, **options):
    config = FitConfig(**{**OPTIONS, "steps": steps, **options})
    return fit(task or line(), config, run, quiet=True, callbacks=callbacks, allow_change=allow_change)


def trained(runs: Path, task=None, **options):
    with Run.create("line", runs_dir=runs) as run:
        return run, train(run, task, **options)


def resumed(run: Run, task=None, allow_change=True, **options):
    with Run.reopen(run.folder) as again:
        return again, train(again, task, allow_change=allow_change, **options)


class At(Callback):
    """Does something at the evaluation of a step, once."""

    def __init__(self, step: int, action):
        self.step, self.action = step, action

    def on_evaluation(self, event):
        if event.step == self.step:
            self.step = -1
            self.action(event.run.folder)


# The folder, or the metrics, while it is trained.


@pytest.fixture
def _check_always(monkeypatch):
    monkeypatch.setattr("lapwing.journal._guard.CHECK_EVERY_S", 0.0)


EVALUATED = line(evaluate=lambda params, key: {"w": params["w"][0]})


@pytest.mark.usefixtures("_check_always")
def test_metrics_that_are_gone_fail_the_run_after_a_checkpoint(tmp_path: Path):
    hurt = At(20, lambda folder: (folder / "metrics.jsonl").unlink())
    with (
        pytest.raises(FilesLostError, match=r"metrics\.jsonl of the run .* was deleted while it ran, in "),
        Run.create("line", runs_dir=tmp_path) as run,
    ):
        train(run, EVALUATED, steps=5000, evaluate_every=5, callbacks=[hurt])
    assert run.state == "failed"
    assert not (run.folder / "metrics.jsonl").exists()
    newest = run.checkpoint("newest").step
    assert newest < 1000
    again, result = resumed(run, EVALUATED, steps=newest + 1)
    assert f"{newest} steps missing: metrics.jsonl has no rows of the steps 0 to {newest - 1}" in again.story
    assert np.isnan(result.metrics["loss"][:newest]).all()


@pytest.mark.usefixtures("_check_always")
def test_a_folder_that_is_gone_fails_the_run_and_is_not_made_again(tmp_path: Path):
    with (
        pytest.raises(FilesLostError, match=r"the folder of the run .* was deleted, moved or replaced while"),
        Run.create("line", runs_dir=tmp_path) as run,
    ):
        train(run, EVALUATED, steps=5000, evaluate_every=5, callbacks=[At(20, shutil.rmtree)])
    assert list(tmp_path.iterdir()) == []


# What is on the disk after a power failure.


def test_metrics_are_synced_before_each_checkpoint(tmp_path: Path, monkeypatch):
    """No checkpoint is renamed to its name before the rows of all its steps are on the disk."""
    synced: dict[str, int] = {}
    known: list[tuple[str, int, int]] = []
    fsync, replace = os.fsync, os.replace

    def recording_fsync(file: int) -> None:
        fsync(file)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{file}"))
        synced[name] = os.fstat(file).st_size

    def recording_replace(draft, path) -> None:
        if str(path).endswith(".safetensors"):
            rows = (run.folder / "metrics.jsonl").read_bytes()[: synced.get("metrics.jsonl", 0)].count(b"\n")
            known.append((Path(path).name, int(Path(path).stem.split("-")[-1]), rows))
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    with Run.create("line", runs_dir=tmp_path) as run:
        train(run, checkpoint=Checkpointing(every=7))
    assert len(known) > 5
    assert all(rows >= step for _, step, rows in known), known
    assert {run.folder.name, tmp_path.name, "events.jsonl"} <= synced.keys()


def damage(run: Run, change) -> None:
    path = run.folder / "metrics.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def test_steps_that_are_missing_are_counted_at_resume_and_nothing_else_changes(tmp_path: Path):
    whole, expected = trained(tmp_path / "whole")
    run, _ = trained(tmp_path / "parts", steps=20)
    damage(run, lambda lines: [*lines[:3], *lines[6:8], *lines[9:]])
    again, result = resumed(run)
    said = "4 steps missing: metrics.jsonl has no rows of the steps 3 to 5, 8"
    assert said in again.story
    assert {"event": "steps missing", "count": 4}.items() <= next(
        event for event in again.events() if event["event"] == "steps missing"
    ).items()
    assert np.flatnonzero(np.isnan(result.metrics["loss"])).tolist() == [3, 4, 5, 8]
    kept = ~np.isnan(result.metrics["loss"])
    assert same_bits(result.metrics["loss"][kept], expected.metrics["loss"][kept])
    assert same_bits(result.state.params, expected.state.params)
    assert "missing" not in whole.story


def test_damaged_lines_are_mentioned_everywhere(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(
        "lapwing.journal._best._WORTH_STORING", 0
    )  # The second list reads what the first has stored.
    run, _ = trained(tmp_path)
    damage(run, lambda lines: [*lines[:3], "\0" * 20 + "\n", *lines[4:]])
    for words in (["runs"], ["runs"], ["show", run.name]):
        assert main([*words, "--runs", str(tmp_path)]) == 0
        assert "1 damaged lines were skipped" in capsys.readouterr().out
    again, _ = resumed(run)
    assert "1 steps missing: metrics.jsonl has no rows of the steps 3" in again.story
    assert "1 damaged lines of metrics.jsonl and events.jsonl are skipped" in again.story


@pytest.mark.slow
def test_steps_without_a_finite_gradient_are_not_missing(tmp_path: Path):
    """They are logged, and come back when the run is resumed."""

    def data(key, step):
        return jnp.where(step == 7, jnp.nan, jax.random.normal(key, (8, 3)))

    def loss(params, batch):
        is_bad = jnp.isnan(batch).any()
        error = jnp.mean((jnp.nan_to_num(batch) @ (params["w"] - 1.0)) ** 2)
        # The loss is finite; the gradient of the root at 0 is not.
        return error + 0.0 * jnp.sqrt(jnp.where(is_bad, 0.0 * params["b"], 1.0)), {}

    task = line(data=data, loss=loss)
    _, expected = trained(tmp_path / "whole", task, steps=20)
    assert np.flatnonzero(np.isnan(expected.metrics["gradient_norm"])).tolist() == [7]
    run, _ = trained(tmp_path / "parts", task, steps=20)
    again, result = resumed(run, task, steps=20)
    assert "missing" not in again.story
    assert same_bits(result.metrics["loss"], expected.metrics["loss"])


# A best checkpoint that is damaged.


def rising():
    """The best is found early, and the loss rises afterwards."""
    return line(
        data=lambda key, step: jnp.abs(jnp.float32(step) - 12.0),
        loss=lambda params, batch: (1.0 + batch + 0.0 * params["b"], {}),
    )


def flip_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"record", b"recort", 1))


def test_a_best_that_is_damaged_is_named_and_searched_for_again(tmp_path: Path, capsys):
    run, first = trained(tmp_path, rising(), smooth=5)
    best = run.checkpoint("best")
    assert 5 < best.step == first.best_step < 30
    flip_header(best.path)
    with pytest.raises(CheckpointError) as error:
        run.params()
    damage = f"the checkpoint {best.path} is damaged: its header was changed after it was written; "
    assert str(error.value) == (
        f"{damage}it is the best one of {run.name}, and the newest complete one is that of step 40: ask for that step "
        "to use it"
    )
    again, result = resumed(run, rising(), smooth=5, steps=60)
    said = (
        f"{damage}the best state is lost, that of step 40 takes its place, and the search for the best starts again "
        "there"
    )
    assert said in capsys.readouterr().err
    assert said in again.story
    assert 40 <= result.best_step == again.checkpoint("best").step, "number and state belong together"


def test_a_refused_resume_says_what_is_damaged_and_records_nothing(tmp_path: Path, capsys):
    run, _ = trained(tmp_path)
    newest = run.checkpoint("newest")
    newest.path.write_bytes(newest.path.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in run.folder.rglob("*.*") if path.is_file()}
    with pytest.raises(ConfigError):
        resumed(run, allow_change=False, clip=0.5)
    assert newest.path.name in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.folder.rglob("*.*") if path.is_file()} == before


# The time of a run.


def test_a_run_that_ended_by_its_minutes_has_them_again_when_it_is_resumed(tmp_path: Path):
    run, first = trained(tmp_path, steps=10**8, stop=Stop(minutes=0.01))
    again, second = resumed(run, steps=10**8, stop=Stop(minutes=0.01))
    assert second.outcome.startswith("its time of 0.01 minutes is over; ")
    assert int(second.state.step) > int(first.state.step)
    assert second.seconds > first.seconds + 0.5, "the time of the run counts both"
    assert again.state == "finished"


def test_minutes_that_are_over_before_the_first_step_still_allow_one(tmp_path: Path):
    run, first = trained(tmp_path, steps=10**8, stop=Stop(minutes=1e-9))
    _, second = resumed(run, steps=10**8, stop=Stop(minutes=1e-9))
    assert 0 < int(first.state.step) < int(second.state.step), "resuming again and again gets further"


# Any path.


ONE_BY_ONE = ["exp[1]", "a\\b", "x*?", "s p'a\"c\ne", "%2F $HOME {ü} ☃"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["".join(ONE_BY_ONE), *(pytest.param(name, marks=pytest.mark.slow) for name in ONE_BY_ONE)]
)
def test_a_run_of_any_name_rolls_back_resumes_and_is_read(tmp_path: Path, name: str, capsys):
    runs = tmp_path / name
    with Run.create("line", runs_dir=runs, name=name) as run:
        task = line(evaluate=lambda params, key: {"w": params["w"][0]})
        ask = At(20, lambda folder: Run.open(folder).post("rollback", to=10))
        plan = Checkpointing(every=10, keep_every=10)
        result = train(run, task, checkpoint=plan, evaluate_every=10, callbacks=[ask])
    assert [e["to"] for e in run.events() if e["event"] == "rollback"] == [10]
    again, further = resumed(run, task, checkpoint=plan, evaluate_every=10)
    assert same_bits(result.state.params, further.state.params)
    np.testing.assert_array_equal(Run.open(run.folder).params("newest")["w"], further.params["w"])
    for words in (["runs"], ["show", name], ["report", name], ["export", name, "--out", str(runs / "w.npz")]):
        assert main([*words, "--runs", str(runs)]) == 0, capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert len(Checkpoints(again.checkpoints).all()) >= 4
    assert json.loads((run.folder / "config.json").read_text())["experiment"] == "line"
