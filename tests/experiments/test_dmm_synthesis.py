"""The experiment dmm-synthesis: short, as it is typed; and long, to the end."""

import json

import pytest

from lapwing import dmm, trees
from lapwing.cli import main
from lapwing.experiments import dmm_synthesis
from lapwing.journal import Run, find_run
from lapwing.synthesis._tidy import without_idle


@pytest.mark.slow
def test_a_short_run_leaves_its_machines_and_their_tests(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    student = "--starts 1 --layers 2 --width 1 --cycles 40 --long-cycles 60"
    steps = "--steps 40 --train-steps 20 --round-steps 20 --steps-per-call 20"
    assert main(["train", "dmm-synthesis", *student.split(), *steps.split(), "--no-check"]) == 0
    out = capsys.readouterr().out
    assert "0 of 1 starts ended with at most 30 links and an error of 0.05" in out
    assert "unseen: 21 texts, 140 cycles" in out
    assert "new: 15 texts, 420 cycles" in out
    run = Run.open(find_run("latest"))
    results = json.loads((run.folder / "results.json").read_text())
    assert {row["group"] for row in results["tests"]} == {"seen", "long", "unseen", "new"}
    assert dmm.Machine.load(run.folder / "machine.json").soft()


def test_unseen_texts_are_others_of_the_same_length_and_characters():
    texts = dmm_synthesis.shuffled("test string.")
    assert len({*texts, "test string."}) == 21
    assert {len(text) for text in texts} == {12}
    assert set("".join(texts)) <= set("test string.")


def test_new_texts_have_lengths_and_characters_that_training_never_saw():
    texts, trained = dmm_synthesis.new_texts(), (*dmm_synthesis.TEXTS, *dmm_synthesis.LONG_TEXTS)
    assert not {len(text) for text in texts} & {len(text) for text in trained}
    assert all({*text} - {".", *"".join(trained)} for text in texts)
    assert max(map(len, texts)) * 10 < dmm_synthesis.NEW_CYCLES


LAYERS, COMPARE_FREE = dmm_synthesis.STUDENTS["compare-free"]


def compare_free_detector():
    """Exact, and of ten links: a norm of the counts and of 1 is the larger of both; 1 is subtracted in the next norm,
    a cycle later, from a 1 that is as late."""
    student = dmm.feedforward_student(LAYERS, 2, COMPARE_FREE)
    links = {
        ("accum-1-1", "dict-2", "input", "char"): 1.0,
        ("norm-2-1", "dict", "accum-1-1", "dict"): 1.0,
        ("norm-2-1", "dict", "const_1", "const_1"): 1.0,
        ("norm-1-1", "dict", "const_1", "const_1"): 1.0,
        ("norm-3-1", "dict", "norm-2-1", "norm"): 1.0,
        ("norm-3-1", "dict", "norm-1-1", "norm"): -1.0,
        ("output", "dict-1", "norm-3-1", "norm"): 1.0,
        ("dot-2-1", "dict-1", "accum-1-1", "dict"): 1.0,
        ("dot-2-1", "dict-2", "eos", "char"): 1.0,
        ("output", "dict-2", "dot-2-1", "dot"): 1.0,
    }
    leaves = trees.paths(student.values)
    assert {("matrix", *link) for link in links} <= leaves.keys()
    hard = {path: leaf for path, leaf in leaves.items() if path in student.hard}
    made = {("matrix", *link): weight for link, weight in links.items()}
    return without_idle(student.with_values(trees.from_paths({**hard, **made})))


@pytest.mark.slow
def test_a_machine_without_compares_can_be_exact():
    machine = compare_free_detector()
    assert len(machine.soft()) == 10
    student = dmm.feedforward_student(LAYERS, 2, COMPARE_FREE)
    assert len(student.soft()) == 942
    assert not any(name.startswith("compare") for name in student.neurons)
    text = dmm_synthesis.new_texts()[6]
    ours, theirs = (
        dmm.interpret(each, 110, text=text).answers for each in (machine, dmm.duplicate_detector())
    )
    assert ours == theirs
    assert min(map(max, theirs.values())) > 0


@pytest.mark.slow
def test_the_default_run_finds_machines_smaller_and_better_than_the_published_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dmm-synthesis", "--quiet"]) == 0
    run = Run.open(find_run("latest"))
    results = json.loads((run.folder / "results.json").read_text())
    assert results["machines"][0]["links"] <= 19
    assert max(row["error"] for row in results["tests"]) <= 0.002
    right = [
        each for each in results["machines"] if each["links"] <= 30 and max(each["worst"].values()) <= 0.05
    ]
    assert len(right) >= 6
