"""Programs for several texts: each text is read as if it were alone, whatever is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm
from lapwing.cli import main
from lapwing.dmm import MachineError
from lapwing.synthesis import Examples, errors_on
from tests.slow import some

TEXTS = ["aab", "ab", "aaaaa"]


def counter(*, hard: bool = False, matrix_from: str | None = None) -> dmm.Machine:
    """Counts the commonest character. Its clock is soft, unless it is hard."""
    m = dmm.Machine(matrix_from=matrix_from)
    activations = {"timer": dmm.timer, "input": dmm.input_text, "accum": dmm.accum, "norm": dmm.norm}
    for name, activation in {**activations, "output": dmm.output}.items():
        m.neuron(name, activation, **({"period": 2} if name == "input" else {}))
    m.link("timer.timer", "timer.timer", 1.0, hard=hard)
    m.link("input.timer", "timer.timer", 1.0, hard=hard)
    m.link("accum.dict-1", "accum.dict", 1.0)
    m.link("accum.dict-2", "input.char", 1.0)
    m.link("norm.dict", "accum.dict", 1.0)
    m.link("output.dict-1", "norm.norm", 1.0)
    return m


def rewriting() -> dmm.Machine:
    """The counter, with another link in every cycle: it doubles its answer more and more."""
    m = counter(hard=True, matrix_from="self.result")
    m.neuron("self", dmm.accum_add_args)
    m.neuron("more", dmm.constant, value={"output": {"dict-1": {"norm": {"norm": 0.5}}}})
    m.link("self.accum", "self.result", 1.0, hard=True)
    m.link("self.delta", "more.result", 1.0, hard=True)
    return m


def interpreted(machine: dmm.Machine, cycles: int) -> list[list[float]]:
    return [dmm.interpret(machine, cycles, text=text).answers["dict-1"] for text in TEXTS]


@pytest.mark.parametrize(
    "machine",
    some([counter(), counter(hard=True), rewriting()], 0, 1),
    ids=["soft clock", "hard clock", "rewriting"],
)
def test_each_text_is_read_alone(machine):
    program = dmm.compile(machine, 14, texts=TEXTS)
    answers = jax.jit(program.answers)(program.start)
    np.testing.assert_allclose(answers[..., 0], interpreted(machine, 14), rtol=1e-6)


@pytest.mark.slow
def test_machines_with_a_soft_clock_in_a_batch():
    program = dmm.compile(counter(), 14, texts=TEXTS)
    starts = jnp.stack([program.start, 0.5 * program.start])
    answers = jax.jit(program.answers)(starts)
    assert answers.shape == (2, 3, 14, 2)
    for start, found in zip(starts, answers, strict=True):
        np.testing.assert_allclose(found[..., 0], interpreted(program.with_params(start), 14), rtol=1e-6)


def test_the_gradient_through_a_soft_clock():
    program = dmm.compile(counter(), 8, texts=TEXTS)
    each = [dmm.compile(counter(), 8, text=text) for text in TEXTS]
    loss = jax.jit(jax.grad(lambda params: program.loss(params, jnp.ones((3, 8, 2)))))
    alone = [jax.jit(jax.grad(lambda p, one=one: one.loss(p, jnp.ones((8, 2)))))(one.start) for one in each]
    np.testing.assert_allclose(loss(program.start), sum(alone), rtol=1e-5)


@pytest.mark.slow
def test_examples_of_a_teacher_with_a_soft_clock():
    examples = Examples.from_teacher(counter(), TEXTS, 14)
    assert examples.targets[:, -1, 0].tolist() == [answers[-1] for answers in interpreted(counter(), 14)]
    assert errors_on(counter(), examples)[0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.slow
def test_the_command_that_tests_a_machine_with_a_soft_clock(tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("machine.json", "teacher.json")]
    counter().save(files[0])
    counter(hard=True).save(files[1])
    words = ["dmm", "test", files[0], "--teacher", files[1], "--cycles", "14", "--json", "--text", *TEXTS]
    assert main(words) == 0
    assert capsys.readouterr().out.count('"error": 0.0') == 3


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("aab", r"expected texts in a list, like texts=\['aab', 'abc'\], but got 'aab'"),
        ([], r"expected texts in a list, like texts=\['aab', 'abc'\], but got \[\]"),
        (["a", ""], r"expected texts that are not empty, each a string or a list of V-values, but one is ''"),
        (["a", 5], r"expected texts that are not empty, each a string or a list of V-values, but one is 5"),
    ],
)
def test_texts_that_are_none(texts, message):
    with pytest.raises(MachineError, match=message):
        dmm.compile(counter(), 3, texts=texts)


def test_one_text_and_several_are_not_both_read():
    with pytest.raises(MachineError, match=r"but got both; pass one of them"):
        dmm.compile(counter(), 3, text="ab", texts=TEXTS)


def test_targets_that_would_be_repeated_are_refused():
    program = dmm.compile(counter(), 3, texts=TEXTS)
    for shape in ((), (3, 2), (len(TEXTS), 3, 1), (len(TEXTS), 4, 2)):
        with pytest.raises(MachineError, match=r"expected targets of the shape \(3, 3, 2\), .* the shape"):
            program.loss(program.start, jnp.zeros(shape))


def test_a_machine_is_watched_on_one_text():
    with pytest.raises(MachineError, match=r"watch is compiled for one text; pass text=... instead of texts"):
        dmm.compile(counter(), 3, texts=TEXTS, watch=["accum.dict"])
