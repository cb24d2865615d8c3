"""A run folder of format 1, as Lapwing wrote it in November 2026, read with the names of today."""

import shutil
from pathlib import Path

import pytest

from lapwing.journal import Run, from_json
from lapwing.report import glance, marks_of

OLD = Path(__file__).parent / "format_1"


@pytest.fixture
def old(tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(OLD, tmp_path / "20261101-101500-adding-abcd"))


def test_config_metrics_events_and_state(old: Run):
    assert old.config["learning_rate"] == 0.005
    assert "rate" not in old.config
    columns = old.columns()
    assert sorted(columns) == ["clipped_norm", "gradient_norm", "learning_rate", "loss", "step", "time"]
    assert columns["learning_rate"].tolist() == [0.005, 0.005, 0.01, 0.005]
    assert old.latest()["learning_rate"] == 0.005
    names = [event["event"] for event in old.events()]
    assert names[:5] == ["started", "applied", "paused", "applied", "unpaused"]
    assert [event["command"] for event in old.events() if "command" in event] == ["pause", "resume", "set"]
    assert old.state == "finished"
    assert old.damaged == 0


def test_what_is_drawn_of_it(old: Run):
    assert [(mark.step, mark.text) for mark in marks_of(old)] == [
        (2, "learning_rate=0.01"),
        (2, "back from 3"),
        (3, "learning_rate=0.0025"),
    ]
    assert glance(old).rollbacks == 1


def test_it_is_paused_until_it_went_on(old: Run):
    """The last event decides: `went on` of format 1 ends a pause."""
    lines = (old.folder / "events.jsonl").read_text().splitlines()
    for count, state in ((3, "paused"), (5, "running")):
        (old.folder / "events.jsonl").write_text("\n".join(lines[:count]) + "\n")
        with Run.reopen(old.folder):
            text = (old.folder / "events.jsonl").read_text().splitlines()[:count]
            (old.folder / "events.jsonl").write_text("\n".join(text) + "\n")
            assert Run.open(old.folder).state == state


def test_a_resumed_one_writes_new_names_and_both_are_one_column(old: Run):
    with Run.reopen(old.folder) as run:
        run.log({"step": 4, "loss": 0.25, "learning_rate": 0.001})
    assert Run.open(old.folder).columns()["learning_rate"].tolist() == [0.005, 0.005, 0.01, 0.005, 0.001]


def test_its_page_on_the_board(old: Run):
    pytest.importorskip("starlette")
    from lapwing.board._details import details
    from lapwing.board._digest import Digest

    digest = Digest(old)
    while digest.read_on():
        pass
    assert digest.shown.latest["learning_rate"] == 0.005
    assert ("learning_rate", 0.005) in details(old.name, old.folder)["config"]


def test_a_metric_of_a_new_run_may_have_an_old_name(tmp_path: Path):
    with Run.create("spikes", runs_dir=tmp_path) as run:
        run.log({"step": 0, "rate": 40.0})
    assert Run.open(run.folder).columns()["rate"].tolist() == [40.0]
    assert from_json((run.folder / "config.json").read_text())["format"] == 2
