"""Files that somebody takes away while a run is written: the run fails with a sentence, and makes nothing again."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lapwing.journal import (
    FilesLostError,
    Run,
    _guard,
)


@pytest.fixture(autouse=True)
def _check_always(monkeypatch):
    monkeypatch.setattr("lapwing.journal._guard.CHECK_EVERY_S", 0.0)
    monkeypatch.setattr("lapwing.journal._loop.POLL_EVERY_S", 0.0)


def replace_metrics(folder: Path) -> None:
    copy = shutil.copy(folder / "metrics.jsonl", folder / "copy")
    os.replace(copy, folder / "metrics.jsonl")


def replace_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


OF_THE_METRICS = {
    "deleted": lambda folder: (folder / "metrics.jsonl").unlink(),
    "replaced": replace_metrics,
    "cut": lambda folder: os.truncate(folder / "metrics.jsonl", 1),
}
OF_THE_FOLDER = {
    "deleted": shutil.rmtree,
    "moved": lambda folder: folder.rename(folder.with_name("moved")),
    "replaced": replace_folder,
}


def own_loop(run, hurt: Callable[[Path], object]) -> None:
    for step in run.steps(1000):
        run.log(loss=1.0)
        if step == 3:
            hurt(run.folder)


def log_alone(run, hurt: Callable[[Path], object]) -> None:
    for step in range(1000):
        run.log(step=step, loss=1.0)
        if step == 3:
            hurt(run.folder)


def at_the_end(run, hurt: Callable[[Path], object]) -> None:
    run.log(step=0, loss=1.0)
    hurt(run.folder)


LOOPS = [own_loop, log_alone, at_the_end]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", OF_THE_METRICS)
def test_metrics_that_are_gone_fail_the_run(tmp_path: Path, loop, what: str):
    with (
        pytest.raises(FilesLostError) as error,
        Run.create("demo", runs_dir=tmp_path, name="mine") as run,
    ):
        loop(run, OF_THE_METRICS[what])
    assert str(error.value) == (
        f"metrics.jsonl of the run mine was {what} while it ran, in {tmp_path / 'mine'}; a run that is resumed "
        "continues from its newest checkpoint, without the metrics that are lost"
    )
    assert run.step in (0, 3, 4), "it was noticed at once"
    assert run.state == "failed"
    assert run.events()[-1]["outcome"] == str(error.value)
    assert (run.folder / "metrics.jsonl").exists() == (what != "deleted")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", OF_THE_FOLDER)
def test_a_folder_that_is_gone_fails_the_run_and_is_not_made_again(tmp_path: Path, loop, what: str):
    folder = tmp_path / "mine"
    with (
        pytest.raises(FilesLostError) as error,
        Run.create("demo", runs_dir=tmp_path, name="mine") as run,
    ):
        loop(run, OF_THE_FOLDER[what])
    assert str(error.value) == (
        "the folder of the run mine was deleted, moved or replaced while it ran, so nothing more can be recorded in "
        f"{folder}; start the run again"
    )
    assert folder.exists() == (what == "replaced")
    if what == "replaced":
        assert "failed" not in [event["event"] for event in Run.open(folder).events()], "it is another run's"


def test_a_link_in_the_place_of_the_metrics_is_no_loss_if_it_was_there_before(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path, name="mine") as run:
        run.log(step=0, loss=1.0)
    (run.folder / "metrics.jsonl").rename(run.folder / "all.jsonl")
    (run.folder / "metrics.jsonl").symlink_to("all.jsonl")
    with Run.reopen(run.folder) as again:
        again.log(step=1, loss=0.5)
    assert Run.open(run.folder).columns()["loss"].tolist() == [1.0, 0.5]


def test_another_error_is_not_hidden(tmp_path: Path):
    """The run folder may be gone because of what failed."""

    def fail() -> None:
        with Run.create("demo", runs_dir=tmp_path) as run:
            run.log(step=0, loss=1.0)
            shutil.rmtree(run.folder)
            time.sleep(0.03)  # Also if the lock is checked again.
            raise ZeroDivisionError

    with pytest.raises(FilesLostError) as error:
        fail()
    assert isinstance(error.value.__context__, ZeroDivisionError)


def test_files_that_get_another_number_on_a_shared_file_system_are_no_loss(tmp_path: Path, monkeypatch):
    """As on a FUSE mount of a bucket, after a while."""
    monkeypatch.setattr(_guard, "is_on_one_machine", lambda folder: False)
    with Run.create("demo", runs_dir=tmp_path) as run:
        run.log(step=1, loss=0.5)
        metrics = run.folder / "metrics.jsonl"
        metrics.with_suffix(".copy").write_bytes(metrics.read_bytes())
        metrics.with_suffix(".copy").rename(metrics)
        assert run._guard.error() is None
        monkeypatch.setattr(run._guard, "_has_numbers", True)
        assert "replaced" in str(run._guard.error())
        monkeypatch.setattr(run._guard, "_has_numbers", False)
