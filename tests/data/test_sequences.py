"""The tasks, checked by plain Python on what was drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.data import END, FIRST, HELD_OUT, NAMES, PAD, SequenceError, SequenceProblem, held_out
from tests.slow import some

SOLUTIONS = {
    "copy": lambda x, base: x,
    "flip": lambda x, base: x[::-1],
    "roll": lambda x, base: [x[(i - x[0]) % len(x)] for i in range(len(x))],
    "sort": lambda x, base: sorted(x),
    "cumsum": lambda x, base: [sum(x[: i + 1]) % base for i in range(len(x))],
}


def drawer(task: SequenceProblem, count: int, split="train"):
    """Examples from a seed and a length, compiled."""
    draw = jax.jit(lambda key, length: task.draw(key, count, split, length))
    return lambda seed, length=task.longest: draw(jax.random.key(seed), length)


def symbols(tokens: np.ndarray) -> list[int]:
    """What stands before the END; after it there must be nothing but PAD."""
    tokens = tokens.tolist()
    end = tokens.index(END)
    assert set(tokens[end + 1 :]) <= {PAD}
    assert all(token >= FIRST for token in tokens[:end])
    return [token - FIRST for token in tokens[:end]]


def number(tokens: np.ndarray, base: int) -> int:
    digits = symbols(tokens)
    assert digits == [0] or digits[-1] != 0, "no leading zeros"
    return sum(digit * base**i for i, digit in enumerate(digits))


@pytest.mark.parametrize("split", some(["train", "test"], 1))
@pytest.mark.parametrize("name", some(SOLUTIONS, 0, 4))
def test_the_answers_are_right(name: str, split):
    task = SequenceProblem(name, base=10, length=7)
    draw = drawer(task, 50, split)
    for length in (1, 4, 7):
        examples = draw(length, length)
        assert examples.inputs.shape == (50, task.inputs) == (50, 8)
        for asked, answered in zip(*map(np.asarray, examples), strict=True):
            if asked.any():
                assert len(symbols(asked)) == length
                assert symbols(answered) == SOLUTIONS[name](symbols(asked), 10)


@pytest.mark.parametrize(("base", "below"), some([(16, 1000), (10, 100), (2, 9), (3, 100_000)], 0, 2))
def test_sums_are_right(base: int, below: int):
    task = SequenceProblem("add", base=base, below=below)
    examples = drawer(task, 300)(0)
    sums, longest = [], 0
    for asked, answered in zip(*map(np.asarray, examples), strict=True):
        if asked.any():
            a, b = number(asked[0::2], base), number(asked[1::2], base)
            assert max(a, b) < below
            assert number(answered, base) == a + b
            sums.append(a + b)
            longest = max(longest, a, b)
    assert longest > 0.8 * below
    assert len(set(sums)) > min(10, below // 2)


def test_fewer_digits_are_smaller_numbers():
    task = SequenceProblem("add", base=10, below=500)
    draw = drawer(task, 200)
    digits = [
        max(number(asked[::2], 10) for asked in np.asarray(draw(0, n).inputs) if asked.any())
        for n in (1, 2, 3)
    ]
    assert [len(str(most)) for most in digits] == [1, 2, 3]
    assert digits[2] < 500


# What is held out is decided before the task: all sequences are drawn as `copy` draws them.
SPLITS = [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("copy", "add"))) for name in NAMES]


@pytest.mark.parametrize("name", some(SPLITS, 0))
def test_what_is_tested_is_never_trained_on(name: str):
    """In a task so small that every example is drawn often, whatever the seed and the padding."""
    task = SequenceProblem(name, base=3, length=3, below=27)
    wider = SequenceProblem(name, base=3, length=5, below=243)

    def seen(split, task, seeds):
        draw = drawer(task, 400, split)
        drawn = [np.asarray(draw(seed, 3).inputs) for seed in seeds]
        rows = np.concatenate(drawn).tolist()
        if name == "add":
            pairs = {
                (number(np.array(row[::2]), 3), number(np.array(row[1::2]), 3)) for row in rows if any(row)
            }
            return pairs | {(b, a) for a, b in pairs}
        return {tuple(symbols(np.array(row))) for row in rows if any(row)}

    trained, tested = seen("train", task, range(4)), seen("test", task, range(4, 8))
    assert trained
    assert tested
    assert not trained & tested
    assert not seen("train", wider, range(2)) & tested


def test_the_share_that_is_held_out():
    pairs = jnp.stack(jnp.meshgrid(jnp.arange(300), jnp.arange(300)), axis=-1).reshape(-1, 2)
    flags = np.asarray(held_out(pairs))
    assert abs(flags.mean() - HELD_OUT) < 0.005
    by_first = flags.reshape(300, 300).mean(axis=0)
    assert by_first.min() > 0.03
    assert by_first.max() < 0.25


@pytest.mark.slow
def test_hardly_an_example_is_empty():
    for split in ("train", "test"):
        examples = drawer(SequenceProblem("copy"), 5000, split)(0)
        assert (np.asarray(examples.targets) == PAD).all(axis=1).mean() < 0.002


def test_batches_come_from_the_key_alone_and_differ():
    task = SequenceProblem("sort")
    draw = drawer(task, 8)
    first, again, other = draw(0), draw(0), draw(1)
    assert (first.inputs == again.inputs).all()
    assert (first.inputs != other.inputs).any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "cpoy"}, "task should be one of copy, flip, roll, sort, cumsum, add, but is cpoy"),
        ({"name": "add", "base": 1}, "base should be at least 2, but is 1"),
        ({"name": "copy", "length": 0}, "length should be at least 1, but is 0"),
        ({"name": "add", "below": 1}, r"below should be from 2 to 2\^30, but is 1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, sentence: str):
    with pytest.raises(SequenceError, match=f"^{sentence}$"):
        SequenceProblem(**options)
