"""Uploading while a run is written."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from lapwing.journal import JournalError, Run, RunWriter
from lapwing.store import Store, StoreError, _background, check_upload, list_runs, pull, push, uploading

from .conftest import save


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_background, "POLL_S", 0.02)


def wait_until(is_so) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_checkpoints_are_uploaded_as_they_are_completed_and_the_rest_at_the_end(
    url: str, run: RunWriter, tmp_path: Path
):
    with uploading(run.folder, url), run:
        # In a file system the first manifest is there before its content is.
        wait_until(lambda: min(Store(url).sizes("one/.manifest").values(), default=0) > 0)
        assert list_runs(url) == ["one"]
        (pulled,) = pull(url, "one", tmp_path / "first")
        assert Run.open(pulled.folder).checkpoint("newest").step == 2
        run.log({"step": 3, "loss": 0.1})
        save(run, 3)
        wait_until(lambda: any("step-3" in name for name in Store(url).sizes("one/checkpoints")))
        run.log({"step": 4, "loss": 0.05})
    (pulled,) = pull(url, "one", tmp_path / "second")
    here = Run.open(pulled.folder)
    assert (here.state, here.latest()["step"], here.checkpoint("newest").step) == ("finished", 4, 3)


def test_a_slow_store_does_not_delay_the_run(
    memory_url: str, run: RunWriter, monkeypatch: pytest.MonkeyPatch
):
    whole, release = Store.write, threading.Event()

    def slow(self: Store, name: str, blocks: Iterable[bytes]) -> None:
        release.wait(60)
        whole(self, name, blocks)

    monkeypatch.setattr(Store, "write", slow)
    with uploading(run.folder, memory_url), run:
        time.sleep(0.1)
        before = time.monotonic()
        for step in range(3, 200):
            run.log({"step": step, "loss": 0.1})
        assert time.monotonic() - before < 30
        assert list_runs(memory_url) == []
        # The run removes a checkpoint that is waiting to be uploaded.
        next(run.checkpoints.iterdir()).unlink()
        release.set()
    assert list_runs(memory_url) == ["one"]


def test_a_store_that_is_away_for_a_while_does_not_stop_the_run(
    memory_url: str, run: RunWriter, monkeypatch: pytest.MonkeyPatch
):
    whole, is_away, said = Store.write, threading.Event(), []

    def write(self: Store, name: str, blocks: Iterable[bytes]) -> None:
        if is_away.is_set():
            raise StoreError("cannot reach the store")
        whole(self, name, blocks)

    monkeypatch.setattr(Store, "write", write)
    is_away.set()
    with uploading(run.folder, memory_url, say=said.append), run:
        wait_until(lambda: said)
        time.sleep(0.2)
        is_away.clear()
    assert said == ["cannot reach the store; the run continues, and the upload is tried again"]
    assert list_runs(memory_url) == ["one"]


def test_what_cannot_be_uploaded_at_the_end_is_an_error_that_says_how_to_do_it_later(
    memory_url: str, run: RunWriter, monkeypatch: pytest.MonkeyPatch
):
    attempts = []

    def write(self: Store, name: str, blocks: Iterable[bytes]) -> None:
        attempts.append(name)
        raise StoreError("cannot reach the store")

    monkeypatch.setattr(_background, "POLL_S", 0.05)
    monkeypatch.setattr(_background, "PATIENCE_S", 0.2)
    monkeypatch.setattr(Store, "write", write)
    later = (
        f"cannot reach the store; all of it is in .*/one, and `lapwing push one {memory_url}` uploads what is"
    )
    with pytest.raises(StoreError, match=later), uploading(run.folder, memory_url, say=lambda _: None), run:
        pass
    assert run.state == "finished"
    assert len(attempts) > 1


def test_a_run_that_fails_is_uploaded_and_fails_of_its_own_error(
    memory_url: str, run: RunWriter, tmp_path: Path
):
    with pytest.raises(ZeroDivisionError), uploading(run.folder, memory_url), run:
        raise ZeroDivisionError
    assert Run.open(pull(memory_url, "one", tmp_path / "here")[0].folder).state == "failed"


def test_a_second_ctrl_c_ends_at_once(memory_url: str, run: RunWriter, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_background, "POLL_S", 100.0)
    said = []
    with pytest.raises(KeyboardInterrupt), uploading(run.folder, memory_url, say=said.append), run:
        raise KeyboardInterrupt
    assert "the upload was interrupted; all of it is in" in said[0]
    assert list_runs(memory_url) == []
    assert push(run.folder, memory_url)["one"]


def _refuse_slowly() -> None:
    time.sleep(0.1)
    raise JournalError("refused")


def test_a_run_that_is_refused_leaves_nothing_in_the_store(memory_url: str, tmp_path: Path):
    run = Run.create("demo", runs_dir=tmp_path, name="one")
    with pytest.raises(JournalError), uploading(run.folder, memory_url), run:
        _refuse_slowly()
    assert not run.folder.exists()
    assert Store(memory_url).sizes() == {}


def test_another_run_of_the_name_is_refused_before_the_training(
    memory_url: str, run: RunWriter, tmp_path: Path
):
    push(run.folder, memory_url)
    check_upload(memory_url, run.folder, "one")
    with pytest.raises(StoreError, match="is another run, or was continued elsewhere"):
        check_upload(memory_url, tmp_path / "new", "one")


def test_the_points_of_a_sweep_are_uploaded_as_they_come(memory_url: str, tmp_path: Path):
    with uploading(tmp_path / "lr", memory_url):
        for name in ("a", "b"):
            with Run.create("demo", runs_dir=tmp_path / "lr", name=name) as run:
                run.log({"step": 1, "loss": 0.5})
            wait_until(lambda name=name: f"lr/{name}" in list_runs(memory_url))
        (tmp_path / "lr" / "summary.json").write_text("{}")
    assert any("lr/.sweep/summary.json" in name for name in Store(memory_url).sizes())
