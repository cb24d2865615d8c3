"""`lapwing runs`, `tag` and `rm`."""

import io
import json
import os
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import Run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["first", "second", "third"]):
        with Run.create("a", runs_dir="runs" if number else "runs/old", name=name) as run:
            run.log(step=number, loss=[0.5, 0.1, 0.3][number])
            run.log(step=number + 5, loss=1.0)
        os.utime(run.folder / "config.json", (number, number))
    return tmp_path / "runs"


def said(capsys, *words: str, status: int = 0) -> str:
    assert main(words) == status
    captured = capsys.readouterr()
    return captured.err if status == 2 else captured.out


def names(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines()[2:]]


def test_runs_shows_the_best_metric_and_sorts_by_it(runs: Path, capsys):
    table = said(capsys, "runs")
    assert table.splitlines()[0].split() == ["run", "state", "step", "loss", "best", "loss", "age"]
    assert names(table) == ["third", "second", "old/first"]
    assert table.splitlines()[3].split()[:5] == ["second", "finished", "6", "1", "0.1"]
    assert names(said(capsys, "runs", "--sort", "best")) == ["second", "third", "old/first"]
    assert names(said(capsys, "runs", "--sort", "step")) == ["third", "second", "old/first"]
    assert names(said(capsys, "runs", "--sort", "name")) == ["old/first", "second", "third"]
    (best,) = [run["best"] for run in json.loads(said(capsys, "runs", "--json")) if run["run"] == "second"]
    assert best == {"metric": "loss", "mode": "min", "value": 0.1, "step": 1}


def test_different_metrics_are_named_in_their_rows(runs: Path, capsys):
    with Run.create("a", {"best": "accuracy", "mode": "max"}, name="fourth") as run:
        run.log(step=1, accuracy=0.75)
    with Run.create("a", name="empty"):
        pass
    table = said(capsys, "runs", "--sort", "best")
    assert names(table) == ["fourth", "second", "third", "old/first", "empty"]
    assert "accuracy 0.75" in table
    assert "loss 0.1" in table


def test_tags_are_shown_and_chosen_by(runs: Path, capsys):
    assert said(capsys, "tag", "sec", "best", "paper") == "second: best, paper\n"
    assert said(capsys, "tag", "third", "paper", "--json") == '{"run": "third", "tags": ["paper"]}\n'
    assert names(said(capsys, "runs", "--tag", "paper")) == ["third", "second"]
    assert names(said(capsys, "runs", "--tag", "paper", "best")) == ["second"]
    assert "best, paper" in said(capsys, "runs")
    assert "best, paper" in said(capsys, "show", "second")
    assert said(capsys, "tag", "second", "best", "--remove") == "second: paper\n"
    assert said(capsys, "tag", "first") == "first: no tags\n"
    assert said(capsys, "runs", "--tag", "none") == "No run in runs has the tag none.\n"
    assert "has no tag 'none'; it has paper" in said(capsys, "tag", "second", "none", "--remove", status=2)
    assert "remove which tags?" in said(capsys, "tag", "second", "--remove", status=2)
    assert "a tag is one word" in said(capsys, "tag", "second", "two words", status=2)


def test_runs_are_deleted(runs: Path, capsys):
    assert said(capsys, "rm", "latest", "first", "third", "--yes") == "deleted third\ndeleted old/first\n"
    assert names(said(capsys, "runs")) == ["second"]
    assert said(capsys, "rm", "second", "--yes", "--json") == '{"deleted": ["second"]}\n'


def test_nothing_is_deleted_if_one_name_is_wrong_or_one_run_runs(runs: Path, capsys):
    assert "there is no run 'fourth'" in said(capsys, "rm", "third", "fourth", "--yes", status=2)
    with Run.create("a", name="busy"):
        assert "busy is running; `lapwing stop busy` ends it" in said(
            capsys, "rm", "third", "busy", "--yes", status=2
        )
    assert len(names(said(capsys, "runs"))) == 4
    assert "which runs?" in said(capsys, "rm", status=2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_asks_before_it_deletes(runs: Path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "this would delete third for good; write --yes" in said(capsys, "rm", "third", status=2)
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    assert said(capsys, "rm", "third", "first", status=1) == (
        "Delete 2 runs (third; old/first) for good? [y/N] nothing was deleted\n"
    )
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert said(capsys, "rm", "third") == "Delete third for good? [y/N] deleted third\n"
    assert not (runs / "third").exists()
