"""Every machine of the library answers as its rule in plain Python says: interpreted, compiled, and in its examples."""

import random

import jax
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine, MachineError
from lapwing.synthesis import Examples, errors_on
from tests.slow import some

from .library_rules import RULES, written

HANDMADE = [name for name, each in dmm.library().items() if not each.published]
READERS = [name for name in HANDMADE if dmm.library()[name].alphabet]


def test_there_are_enough_and_each_has_a_rule_here_or_reads_nothing():
    assert len(HANDMADE) == 18
    assert set(READERS) == set(RULES)
    assert set(HANDMADE) - set(READERS) == {"oscillator", "wave"}


@pytest.mark.parametrize("name", READERS)
def test_the_examples_are_what_the_rule_says(name):
    for text, answers in dmm.library()[name].examples.items():
        assert answers == written(name, text)


@pytest.mark.parametrize("name", HANDMADE)
def test_the_machine_answers_its_examples(name):
    each = dmm.library()[name]
    for example in each.targets():
        targets = example["targets"]
        answers = dmm.interpret(each.build(), len(targets["dict-1"]), text=example["text"] or "-").answers
        assert answers == targets


@pytest.mark.parametrize("name", some(READERS, 1, 5, 7, 10, 11, 13))
def test_the_machine_follows_its_rule_on_random_texts_interpreted_and_compiled(name):
    each = dmm.library()[name]
    draw = random.Random(name)
    texts = ["".join(draw.choices(each.alphabet, k=14 if each.period == 1 else 5)) for _ in range(4)]
    made = dmm.LibraryMachine(
        name, "", each.build, each.alphabet, {text: written(name, text) for text in texts}, each.period
    )
    expected = [list(example["targets"].values()) for example in made.targets()]
    cycles = len(expected[0][0])
    program = dmm.compile(each.build(), cycles, texts=texts)
    compiled = np.moveaxis(np.asarray(jax.jit(program.answers)(program.start)), 1, 2)
    np.testing.assert_allclose(compiled, expected, rtol=1e-6)
    for text, answers in zip(texts, expected, strict=True):
        assert list(dmm.interpret(each.build(), cycles, text=text).answers.values()) == answers


@pytest.mark.parametrize("name", some(["oscillator", "wave"], 0))
def test_a_machine_without_a_text_is_the_same_compiled(name):
    machine = dmm.library()[name].build()
    program = dmm.compile(machine, 20)
    interpreted = list(dmm.interpret(machine, 20).answers.values())
    np.testing.assert_allclose(jax.jit(program.answers)(program.start).T, interpreted)
    assert np.array_equal(interpreted[0][6:], interpreted[0][:14])


def test_wave_moves_its_link():
    trace = dmm.interpret(dmm.library()["wave"].build(), 4)
    rows = [list(trees.prune(cycle.matrix["output"]["dict-1"], 0.5)) for cycle in trace.cycles]
    assert rows == [["level-1"], ["level-2"], ["level-3"], ["level-1"]]


@pytest.mark.parametrize("name", HANDMADE)
def test_a_machine_survives_its_file(name, tmp_path):
    machine = dmm.library()[name].build()
    machine.save(tmp_path / "machine.json")
    assert Machine.load(tmp_path / "machine.json").to_json() == machine.to_json()


def test_a_name_loads_the_machine_unless_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Machine.load("parity").to_json() == dmm.library()["parity"].build().to_json()
    dmm.duplicate_detector().save("parity")
    assert len(Machine.load("parity").links()) == 11


def test_what_is_not_in_the_library_gets_one_sentence():
    with pytest.raises(MachineError, match=r"no such file; did you mean parity of the library\?$"):
        Machine.load("pariti")
    with pytest.raises(
        MachineError, match=r"^there is no machine 'pariti' in the library; did you mean parity"
    ):
        dmm.from_library("pariti")


@pytest.mark.parametrize("name", ["quotes", "wave"])
def test_examples_by_name(name):
    errors, _ = errors_on(dmm.from_library(name).build(), Examples.load(name))
    assert errors.tolist() == [0.0] * len(errors)
