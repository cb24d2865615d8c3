"""Runs in order: tags, deletion, and the best metric."""

import math
import os
import random
from pathlib import Path

import pytest

from lapwing.journal import JournalError, Run, RunWriter, remove_run, run_folders
from lapwing.journal import _best as best_module


@pytest.fixture
def run(tmp_path: Path) -> RunWriter:
    return Run.create("a", runs_dir=tmp_path)


def test_tags_are_added_and_removed_by_anybody(run: RunWriter):
    Run.open(run.folder).tag("best", "paper", "best")
    Run.open(run.folder).tag("paper")  # It is there already.
    run.end("finished", "")
    Run.open(run.folder).tag("lr=0.1", "Größe")
    Run.open(run.folder).tag("best", remove=True)
    assert Run.open(run.folder).tags == ["paper", "lr=0.1", "Größe"]
    assert [event.get("add") or event["remove"] for event in run.events() if event["event"] == "tagged"] == [
        ["best", "paper"],
        ["lr=0.1", "Größe"],
        ["best"],
    ]
    assert "tagged best, paper\n" in run.story
    assert "no longer tagged best\n" in run.story


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "x" * 51, "a\n", "a/b"])
def test_a_tag_is_a_word(run: RunWriter, tag: str):
    with pytest.raises(JournalError, match="a tag is one word of letters, digits and any of"):
        run.tag(tag)
    assert run.tags == []


def test_a_tag_that_is_not_there_cannot_be_removed(run: RunWriter):
    run.tag("paper")
    with pytest.raises(JournalError, match=r"a-\w{4} has no tag 'papers'; it has paper"):
        run.tag("papers", remove=True)


def test_damaged_tags_are_read_as_far_as_they_go(run: RunWriter):
    run.event("tagged", add="best")
    run.event("tagged", add=["good", 3], remove=None)
    assert run.tags == ["good", "3"]


def test_a_run_is_deleted_and_others_are_not(tmp_path: Path):
    kept, gone = (Run.create("a", runs_dir=tmp_path) for _ in range(2))
    gone.end("finished", "")
    remove_run(gone.folder)
    assert os.listdir(tmp_path) == [kept.name]


def test_a_run_that_somebody_writes_is_not_deleted(run: RunWriter):
    with pytest.raises(JournalError, match="is being written by process"):
        remove_run(run.folder)
    run.log(step=1, loss=0.5)
    assert run.columns()["loss"].tolist() == [0.5]


def test_a_deletion_that_is_interrupted_leaves_no_half_of_a_run(run: RunWriter, tmp_path: Path, monkeypatch):
    run.end("finished", "")
    other = Run.create("b", runs_dir=tmp_path)
    other.end("finished", "")
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove_run(run.folder)
    assert run_folders(tmp_path) == [other.folder]
    assert len(os.listdir(tmp_path)) == 2
    remove_run(other.folder)
    assert os.listdir(tmp_path) == [], "what was left of the first is deleted too"


def test_a_link_is_not_deleted(run: RunWriter, tmp_path: Path):
    run.end("finished", "")
    (tmp_path / "link").symlink_to(run.folder)
    with pytest.raises(JournalError, match="is a link; name the folder that it leads to"):
        remove_run(tmp_path / "link")
    assert run.state == "finished"


# The best metric.


def values(run: RunWriter) -> tuple:
    best = Run.open(run.folder).best()
    return (best.metric, best.value, best.step) if best else ()


def test_the_best_is_the_lowest_loss_unless_the_config_says_otherwise(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    assert values(run) == ()
    run.log(*({"step": i, "loss": loss} for i, loss in enumerate([3.0, math.nan, -math.inf, 1, 2.0])))
    assert values(run) == ("loss", 1.0, 3)
    other = Run.create("a", {"best": "eval_accuracy", "mode": "max"}, runs_dir=tmp_path)
    other.log({"step": 1, "loss": 0.1})
    assert values(other) == ()
    other.log(
        {"step": 1, "eval_accuracy": 0.5},
        {"step": 2, "eval_accuracy": 0.75},
        {"step": 3, "eval_accuracy": 0.6},
    )
    assert values(other) == ("eval_accuracy", 0.75, 2)


def test_a_best_that_was_undone_is_not_the_best(run: RunWriter):
    run.log(*({"step": i, "loss": loss} for i, loss in enumerate([3.0, 2.0, 1.0, 0.5])))
    run.back_to(2)
    assert values(run) == ("loss", 2.0, 1)
    run.log({"step": 2, "loss": 1.5})
    assert values(run) == ("loss", 1.5, 2)


def test_of_a_long_run_only_what_is_new_is_read(run: RunWriter, monkeypatch):
    chance = random.Random(0)
    losses = [chance.uniform(1, 2) for _ in range(3000)]
    run.log(*({"step": i, "loss": loss} for i, loss in enumerate(losses)))
    assert values(run) == ("loss", min(losses), losses.index(min(losses)))
    assert (run.folder / best_module.FILE).exists()
    rows = []
    better = best_module._better
    monkeypatch.setattr(
        best_module, "_better", lambda best, new, *rest: rows.extend(new) or better(best, new, *rest)
    )
    assert values(run)[1] == min(losses)
    run.log({"step": 3000, "loss": 0.5})
    assert values(run) == ("loss", 0.5, 3000)
    assert len(rows) == 1
    run.back_to(100)
    assert values(run)[1:] == (min(losses[:100]), losses.index(min(losses[:100])))


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"metric": "loss", "mode": "min", "position": 9999999, "damaged": 0, "best": null}'],
)
def test_a_damaged_store_is_not_believed(run: RunWriter, content: str):
    run.log({"step": 1, "loss": 0.5})
    (run.folder / best_module.FILE).write_text(content)
    assert values(run) == ("loss", 0.5, 1)
