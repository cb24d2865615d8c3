import os
import threading
import time
from pathlib import Path

import pytest

from lapwing.board._shelf import Shelf, UnknownError
from lapwing.journal import Run

from .serving import falling, started, until


def looked(folder: Path, **options) -> Shelf:
    shelf = Shelf(folder, **options)
    while shelf.look():
        pass
    return shelf


def test_runs_come_go_and_grow(tmp_path: Path):
    shelf = looked(tmp_path / "runs")
    assert shelf.rows() == []
    run = started(tmp_path / "runs", [3.0, 2.0])
    shelf.look()
    (row,) = shelf.rows()
    assert (row["run"], row["state"], row["step"], row["loss"], row["best"]) == (
        run.name,
        "running",
        1,
        2.0,
        2.0,
    )
    assert (row["experiment"], row["steps"], row["effective_learning_rate"], row["speed"]) == (
        "adding",
        1000,
        0.1,
        pytest.approx(10.0),
    )
    run.log({"step": 2, "loss": 5.0})
    run.end("finished", "")
    shelf.look()
    (row,) = shelf.rows()
    assert (row["state"], row["loss"], row["best"]) == ("finished", 5.0, 2.0)
    os.rename(tmp_path / "runs", tmp_path / "elsewhere")
    shelf.look()
    assert shelf.rows() == []
    with pytest.raises(UnknownError, match=r"there is no run '.*' in '.*'; the page of all runs lists them"):
        shelf.get(run.name)


def test_points_of_a_sweep_have_its_name_before_theirs(tmp_path: Path):
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "sweep.json").write_text("{}")
    point = started(tmp_path / "grid", [1.0])
    shelf = looked(tmp_path)
    (row,) = shelf.rows()
    assert (row["run"], row["sweep"]) == (f"grid/{point.name}", "grid")
    assert list(shelf.sweeps()) == ["grid"]


def test_one_that_cannot_be_read_hides_no_other(tmp_path: Path):
    good, bad = started(tmp_path, [1.0]), started(tmp_path, [1.0])
    (bad.folder / "config.json").write_text("{}")
    shelf = looked(tmp_path)
    states = {row["run"]: row["state"] for row in shelf.rows()}
    assert states == {good.name: "running", bad.name: "unreadable"}
    with pytest.raises(
        UnknownError, match=r"config\.json does not belong to a run: Lapwing writes a number 'format' into it"
    ):
        shelf.get(bad.name)


def test_a_run_that_becomes_unreadable_is_said_to_be(tmp_path: Path):
    run = started(tmp_path, [1.0])
    shelf = looked(tmp_path)
    (run.folder / "events.jsonl").unlink()
    (run.folder / "events.jsonl").mkdir()
    shelf.look()
    (row,) = shelf.rows()
    assert row["state"] == "unreadable"
    assert "events.jsonl" in row["error"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.json"])
def test_a_link_out_of_a_run_is_not_followed(tmp_path: Path, name: str):
    run, good = started(tmp_path / "runs", [1.0]), started(tmp_path / "runs", [2.0])
    secret = tmp_path / name
    os.rename(run.folder / name, secret)
    (run.folder / name).symlink_to(secret)
    rows = {row["run"]: row for row in looked(tmp_path / "runs").rows()}
    assert (rows[run.name]["state"], rows[good.name]["loss"]) == ("unreadable", 2.0)
    assert f"'{name}' is not inside the run" in rows[run.name]["error"]


def test_a_run_that_was_unreadable_comes_back_when_it_is_repaired(tmp_path: Path):
    run = started(tmp_path, [1.0])
    sound = (run.folder / "config.json").read_text()
    (run.folder / "config.json").write_text("{}")
    shelf = looked(tmp_path)
    assert shelf.rows()[0]["state"] == "unreadable"
    (run.folder / "config.json").write_text(sound)
    shelf.look()
    assert shelf.rows()[0]["state"] == "running"


@pytest.mark.parametrize("method", ["look", "read_on"])
def test_the_reader_outlives_what_nobody_has_thought_of(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
):
    run, bad = started(tmp_path, [3.0]), started(tmp_path, [1.0])
    shelf = Shelf(tmp_path)
    shelf.start()

    def fails() -> bool:
        raise ZeroDivisionError("what nobody has thought of")

    try:
        kept = shelf.get(bad.name)
        monkeypatch.setattr(kept if method == "look" else kept.digest, method, fails)
        bad.log({"step": 1, "loss": 0.5})
        until(lambda: any("error" in row for row in shelf.rows()))
        (row,) = (row for row in shelf.rows() if row["run"] == bad.name)
        assert row["error"] == "unexpected ZeroDivisionError: what nobody has thought of"
        run.log({"step": 1, "loss": 2.0})
        until(lambda: 2.0 in [row.get("loss") for row in shelf.rows()])
    finally:
        shelf.stop()


def test_a_return_that_is_written_with_escapes_does_not_keep_the_reader_busy(tmp_path: Path):
    run = started(tmp_path, [3.0, 2.0, 1.0])
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write('{"back\\u005fto": 1}\n')
    shelf = Shelf(tmp_path)
    for _ in range(10):
        more = shelf.look()
    assert (more, shelf.rows()[0]["loss"]) == (False, 3.0)


def test_memory_is_given_back_by_what_nobody_looks_at(tmp_path: Path):
    runs = [started(tmp_path, falling(300, seed)) for seed in range(4)]
    shelf = looked(tmp_path)
    each = shelf.get(runs[0].name).digest.nbytes
    small = Shelf(tmp_path, most_bytes=2 * each + 1000)
    small.look()
    small.get(runs[0].name)
    while small.look():
        pass
    kept = {run.name: bool(small._kept[run.name].digest.nbytes) for run in runs}
    assert sum(kept.values()) == 2
    assert kept[runs[0].name]
    assert all(row["sketch"] and row["best"] is not None for row in small.rows())


def test_the_thread_follows_without_being_asked(tmp_path: Path):
    run = started(tmp_path, [3.0])
    shelf = Shelf(tmp_path)
    shelf.start()
    try:
        assert shelf.rows()[0]["run"] == run.name
        until(lambda: shelf.rows()[0]["loss"] == 3.0)
        run.log({"step": 1, "loss": 2.0})
        until(lambda: shelf.rows()[0]["loss"] == 2.0)
    finally:
        shelf.stop()
    assert "board-reader" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.slow
def test_what_somebody_opens_is_read_first(tmp_path: Path):
    """The oldest of several long runs is opened while the others are still being read."""
    line = '{{"step": {0}, "loss": 0.123456, "gradient_norm": 1.2345, "learning_rate": 0.1, "time": {0}}}\n'
    content = "".join(line.format(step) for step in range(120_000))
    runs = [Run.create("adding", runs_dir=tmp_path) for _ in range(4)]
    for run in runs:
        (run.folder / "metrics.jsonl").write_text(content)
    shelf = Shelf(tmp_path)
    shelf.start()
    try:
        time.sleep(0.05)
        oldest = min(runs, key=lambda run: run.created)
        until(lambda: shelf.get(oldest.name).digest.part_read == 1.0)
        parts = [kept.digest.part_read for kept in shelf._kept.values()]
        assert min(parts) < 1.0, "all were read before it"
        until(lambda: all(kept.digest.part_read == 1.0 for kept in shelf._kept.values()))
    finally:
        shelf.stop()
