"""Sums in one line: the same sums as digit below digit, and what a text leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.data.problems import Addition, AdditionText, ProblemError
from lapwing.data.problems._problem import is_of
from tests.slow import some

PLUS, EQUALS, ASKED = 11, 12, 13


@pytest.fixture(scope="module", params=some(["train", "test"], 0))
def drawn(request):
    draw = jax.jit(lambda key: AdditionText(hard=0.3).draw(key, 64, 6, request.param, 1))
    return request.param, jax.tree.map(np.asarray, draw(jax.random.key(0)))


def numbers_of(line: np.ndarray) -> list[str]:
    """The two numbers of a line, read digit by digit."""
    text = "".join(
        "?" if token == ASKED else "+=?"[token - PLUS] if token > 10 else str(token - 1) for token in line
    )
    first, rest = text.split("+")
    second, asked = rest.split("=")
    assert set(asked) == {"?"}
    return [first[::-1], second[::-1], asked]


def test_a_line_has_its_sum_behind_it(drawn):
    _, (inputs, targets) = drawn
    lengths = set()
    for line, answer in zip(inputs[..., 0], targets, strict=True):
        end = np.flatnonzero(line)[-1] + 1
        assert not line[end:].any()
        first, second, asked = numbers_of(line[:end])
        assert len(asked) == max(len(first), len(second)) + 1
        digits = answer[line == ASKED]
        assert int("".join(map(str, digits[::-1]))) == int(first) + int(second)
        assert (answer[line != ASKED] == -1).all()
        lengths.add((len(first), len(second)))
    assert len(lengths) > 15


def test_both_layouts_have_the_same_split(drawn):
    """A sum that is for testing in columns is for testing in a line."""
    split, (inputs, _) = drawn
    columns = np.stack([Addition().parse(AdditionText().text(line), 6) for line in inputs])
    assert bool(is_of(split, Addition().identity(jnp.asarray(columns))).all())


def test_a_text_and_back():
    problem = AdditionText(base=16)
    inputs = problem.parse("ff+1")
    assert problem.text(inputs, problem.solve(inputs)) == "ff+1=100"
    assert problem.text(problem.parse("ff+1", 5)) == "ff+1"
    assert (problem.size_of(inputs), problem.size_of(problem.parse("ff+1", 5))) == (2, 5)
    with pytest.raises(ProblemError, match="expected two numbers"):
        problem.parse("ff")
    with pytest.raises(ProblemError, match="base should be from 2"):
        AdditionText(base=1)
