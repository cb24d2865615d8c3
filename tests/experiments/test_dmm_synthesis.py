"""The experiment dmm-synthesis: short, as it is typed; and long, to the end."""

import json

import pytest

from lapwing import dmm
from lapwing.cli import main
from lapwing.experiments import dmm_synthesis
from lapwing.journal import Run, find_run


def test_a_short_run_leaves_its_machines_and_their_tests(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    student = "--starts 1 --layers 2 --width 1 --cycles 40 --long-cycles 60"
    steps = "--steps 40 --train-steps 20 --round-steps 20 --steps-per-call 20"
    assert main(["train", "dmm-synthesis", *student.split(), *steps.split(), "--no-check"]) == 0
    out = capsys.readouterr().out
    assert "0 of 1 starts ended with at most 30 links and an error of 0.05" in out
    assert "unseen: 21 texts, 40 cycles" in out
    run = Run.open(find_run("latest"))
    results = json.loads((run.folder / "results.json").read_text())
    assert {row["group"] for row in results["tests"]} == {"seen", "long", "unseen"}
    assert dmm.Machine.load(run.folder / "machine.json").soft()


def test_unseen_texts_are_others_of_the_same_length_and_characters():
    texts = dmm_synthesis.shuffled("test string.")
    assert len({*texts, "test string."}) == 21
    assert {len(text) for text in texts} == {12}
    assert set("".join(texts)) <= set("test string.")


@pytest.mark.slow
def test_the_default_run_finds_machines_smaller_and_better_than_the_published_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dmm-synthesis", "--quiet"]) == 0
    run = Run.open(find_run("latest"))
    results = json.loads((run.folder / "results.json").read_text())
    assert results["machines"][0]["links"] <= 19
    assert max(row["error"] for row in results["tests"]) <= 0.002
    assert sum(each["links"] <= 30 and each["error"] <= 0.05 for each in results["machines"]) >= 4
