"""The small files of a store, for those who only read."""

import json
from pathlib import Path

import pytest

from lapwing.journal import Run, RunWriter, run_folders
from lapwing.store import Mirror, Store, _mirror, following, push
from lapwing.store._manifest import manifest_name
from lapwing.store._upload import Upload


def test_a_mirror_follows_the_store_without_its_checkpoints(url: str, run: RunWriter, tmp_path: Path):
    mirror, upload = Mirror(url, tmp_path / "cache"), Upload(run.folder, Store(url), "one")
    upload.sync(is_last=False)
    mirror.refresh()
    (folder,) = run_folders(mirror.folder)
    seen = Run.open(folder)
    assert (seen.state, seen.latest()["step"]) == ("running", 2)
    assert not (folder / "checkpoints").exists()
    run.log({"step": 3, "loss": 0.1})
    run.end("finished", "done")
    upload.sync()
    mirror.refresh()
    assert (seen.state, seen.latest()["step"]) == ("finished", 3)
    assert len(seen.columns()["loss"]) == 3
    Store(url).delete(Store(url).sizes())
    mirror.refresh()
    assert run_folders(mirror.folder) == []


def test_a_run_that_has_not_changed_is_not_read_again(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    push(run.folder, memory_url)
    mirror = Mirror(memory_url, tmp_path / "cache")
    mirror.refresh()
    read = []
    monkeypatch.setattr(Store, "read", lambda self, name: read.append(name) or iter(()))
    mirror.refresh()
    assert read == []


def test_a_run_whose_uploads_have_stopped_is_lost(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("lapwing.store._upload.time.time", lambda: 1e9)
    Upload(run.folder, Store(memory_url), "one").sync(is_last=False)
    monkeypatch.undo()
    mirror = Mirror(memory_url, tmp_path / "cache")
    mirror.refresh()
    assert Run.open(mirror.folder / "one").state == "lost"


def test_a_damaged_run_does_not_hide_the_others(memory_url: str, run: RunWriter, tmp_path: Path):
    push(run.folder, memory_url)
    bad = json.dumps({"format": 1, "files": {"../x": []}}).encode()
    Store(memory_url).write(f"bad/{manifest_name(1, bad)}", [bad])
    mirror = Mirror(memory_url, tmp_path / "cache")
    mirror.refresh()
    assert "is not a manifest of Lapwing" in mirror.damaged["bad"]
    assert sorted(folder.name for folder in run_folders(mirror.folder)) == ["bad", "one"]
    assert Run.open(mirror.folder / "one").latest()["step"] == 2


def test_a_thread_keeps_it_new(
    memory_url: str, run: RunWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_mirror, "REFRESH_S", 0.02)
    mirror = Mirror(memory_url, tmp_path / "cache")
    from .test_background import wait_until

    with following(mirror):
        push(run.folder, memory_url)
        wait_until(lambda: run_folders(mirror.folder))
