"""Problems on a line: what is drawn, against plain Python."""

import functools
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.core import LapwingError
from lapwing.data.problems import (
    PROBLEMS,
    Addition,
    Instances,
    Multiplication,
    Parity,
    PrefixSums,
    Problem,
    ProblemError,
    Reversal,
    Sorting,
)
from tests.slow import some

ARITHMETIC = [Addition(), Multiplication(base=3)]
HARD = [Addition(hard=1.0), Addition(base=2, hard=1.0), Addition(base=3, hard=0.5)]
STRINGS = [PrefixSums(), Parity(), Sorting(base=40), Reversal()]
SOLUTIONS = {
    "prefix_sums": lambda digits, base: [total % base for total in accumulate(digits)],
    "parity": lambda digits, base: [-1] * (len(digits) - 1) + [sum(digits) % base],
    "sorting": lambda digits, base: sorted(digits),
    "reversal": lambda digits, base: digits[::-1],
}


@functools.cache
def drawn(problem: Problem, seed: int = 0, count: int = 64, size: int = 7, split="train", least=None):
    draw = jax.jit(lambda key: problem.draw(key, count, size, split, least))
    return Instances(*map(np.asarray, draw(jax.random.key(seed))))


def number(digits: np.ndarray, base: int) -> int:
    return sum(int(digit) * base**place for place, digit in enumerate(digits))


def pairs(inputs: np.ndarray) -> list[list[np.ndarray]]:
    """The digits of the two numbers of each instance; after the end of a number there is only padding."""
    found = []
    for one in inputs:
        numbers = [column[: np.count_nonzero(column)] - 1 for column in one.T]
        assert all((digits >= 0).all() for digits in numbers)
        assert all(len(digits) == 1 or digits[-1] > 0 for digits in numbers), "a number begins with zero"
        found.append(numbers)
    return found


# Each pair compiles two programs.
@pytest.mark.parametrize("split", ["train", pytest.param("test", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "problem",
    [
        *ARITHMETIC,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (Addition(base=2), *HARD)),
        pytest.param(Multiplication(base=100), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_sums_and_products(problem: Addition | Multiplication, split):
    for least in (None, 1):
        instances = drawn(problem, size=7, split=split, least=least)
        assert instances.inputs.shape == (64, *problem.positions(7), 2)
        for (a, b), targets in zip(pairs(instances.inputs), instances.targets, strict=True):
            sums = problem.name == "addition"
            places = max(len(a), len(b)) + 1 if sums else len(a) + len(b)
            numbers = number(a, problem.base), number(b, problem.base)
            assert number(targets[:places], problem.base) == (
                sum(numbers) if sums else numbers[0] * numbers[1]
            )
            assert (targets[places:] == -1).all()
            assert targets.max() < problem.classes


@pytest.mark.slow
def test_every_number_has_the_size_or_one_from_least():
    for problem in ARITHMETIC:
        lengths = np.array([[len(a), len(b)] for a, b in pairs(drawn(problem, size=7).inputs)])
        assert (lengths == 7).all()
        lengths = np.array([[len(a), len(b)] for a, b in pairs(drawn(problem, size=7, least=1).inputs)])
        assert set(lengths[:, 0]) == set(lengths[:, 1]) == set(range(1, 8))
        assert (lengths[:, 0] != lengths[:, 1]).any()


def longest_carry(a: np.ndarray, b: np.ndarray, base: int = 10) -> int:
    """Places that a carry travels."""
    longest = travelled = 0
    for place in range(max(len(a), len(b))):
        column = sum(int(digits[place]) for digits in (a, b) if place < len(digits))
        travelled = 1 if column >= base else travelled + 1 if column == base - 1 and travelled else 0
        longest = max(longest, travelled)
    return longest


@pytest.mark.slow
@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.slow), "test"])
def test_hard_sums_have_long_carries(split):
    random, hard = (
        pairs(drawn(Addition(hard=share), count=300, size=40, split=split).inputs) for share in (0, 1)
    )
    assert max(longest_carry(a, b) for a, b in random) < 20
    carries = np.array([longest_carry(a, b) for a, b in hard])
    # Fewer than the third that is drawn are of the test split: there are few sums of all nines and one digit.
    assert 0.15 < np.mean(carries >= 39) < 0.45
    assert np.mean(carries < 39) > 0.25  # Some are broken.
    lengths = np.array([sorted([len(a), len(b)]) for a, b in hard])
    assert (lengths[:, 1] == 40).all()
    assert min(np.mean(lengths[:, 0] == 1), np.mean(lengths[:, 0] == 40)) > 0.2
    assert len(set(lengths[:, 0])) > 20
    assert 0.2 < np.mean([len(a) > len(b) for a, b in hard]) < 0.5  # Either number may be the longer one.
    mixed = pairs(drawn(Addition(hard=0.5), count=300, size=40, split=split).inputs)
    assert 0.1 < np.mean([longest_carry(a, b) >= 39 for a, b in mixed]) < 0.4


@pytest.mark.slow
def test_hard_sums_of_training_are_not_larger():
    lengths = np.array(
        [[len(a), len(b)] for a, b in pairs(drawn(Addition(hard=1.0), size=7, least=2).inputs)]
    )
    assert set(lengths.max(axis=1)) == set(range(2, 8))


def test_a_share_of_hard_sums_is_from_0_to_1():
    with pytest.raises(ProblemError, match=r"hard should be from 0 to 1, but is 1.5"):
        Addition(hard=1.5)


@pytest.mark.slow
def test_long_numbers():
    for problem, size in ((Addition(), 500), (Multiplication(), 60)):
        instances = drawn(problem, count=2, size=size)
        for (a, b), targets in zip(pairs(instances.inputs), instances.targets, strict=True):
            sums = problem.name == "addition"
            expected = number(a, 10) + number(b, 10) if sums else number(a, 10) * number(b, 10)
            assert number(targets, 10) == expected


@pytest.mark.parametrize("split", ["train", pytest.param("test", marks=pytest.mark.slow)])
@pytest.mark.parametrize("problem", some(STRINGS, 0, 2), ids=repr)
def test_strings(problem: Sorting, split):
    for least in (None, 4):
        instances = drawn(problem, split=split, least=least)
        lengths = set()
        for tokens, targets in zip(instances.inputs[..., 0], instances.targets, strict=True):
            length = np.count_nonzero(tokens)
            digits = (tokens[:length] - 1).tolist()
            assert min(digits) >= 0
            assert max(digits) < problem.base
            assert targets[:length].tolist() == SOLUTIONS[problem.name](digits, problem.base)
            assert (targets[length:] == -1).all()
            lengths.add(length)
        assert lengths == ({7} if least is None else set(range(4, 8)))


ALL = [*ARITHMETIC, *STRINGS]


@pytest.mark.parametrize("problem", some(ALL, 5), ids=repr)
def test_tokens_and_classes_are_all_used_and_no_others(problem: Problem):
    inputs, targets = drawn(problem, count=2000, size=4, least=1)
    for channel, tokens in enumerate(problem.tokens):
        assert set(np.unique(inputs[..., channel])) == set(range(tokens))
    assert set(np.unique(targets)) == {-1, *range(problem.classes)}


@pytest.mark.parametrize("problem", some(ALL, 0), ids=repr)
def test_the_checker(problem: Problem):
    instances = drawn(problem, least=1)
    assert problem.right(instances, instances.targets).all()
    padded = np.where(instances.targets < 0, 1, instances.targets)
    assert problem.right(instances, padded).all(), "what is not asked does not count"
    for one, targets in enumerate(instances.targets):
        wrong = instances.targets.copy()
        place = np.flatnonzero(targets >= 0)[one % np.count_nonzero(targets >= 0)]
        wrong[one, place] = (wrong[one, place] + 1) % problem.classes
        right = problem.right(instances, wrong)
        assert not right[one]
        assert right.sum() == len(wrong) - 1


@pytest.mark.parametrize(
    "problem",
    [each if at % 6 == 0 else pytest.param(each, marks=pytest.mark.slow) for at, each in enumerate(ALL)],
    ids=repr,
)
def test_what_is_tested_is_never_trained_on(problem: Problem):
    """Small sizes, so that most of the instances that exist are drawn; fields of two widths."""
    seen = {}
    for split in ("train", "test"):
        texts = set()
        for size in (3, 4):
            inputs = drawn(problem, count=2000, size=size, split=split, least=1).inputs
            texts |= {tuple(sorted(problem.text(one).split(getattr(problem, "sign", " ")))) for one in inputs}
        seen[split] = texts - {("",), ("", "")}
    assert seen["train"]
    assert seen["test"]
    assert not seen["train"] & seen["test"]


@pytest.mark.slow
def test_one_in_eight_is_held_out():
    problem = Reversal(base=4)
    counts = {
        split: len(np.unique(drawn(problem, count=20_000, size=5, split=split).inputs[..., 0], axis=0))
        for split in ("train", "test")
    }
    assert sum(counts.values()) == 4**5, "every instance is of one split, and is drawn"
    assert counts["test"] / 4**5 == pytest.approx(1 / 8, abs=0.03)


@pytest.mark.slow
def test_what_does_not_exist_asks_for_nothing():
    """There are two strings of one bit, both for training or both for testing, or one each."""
    drawn_of = {split: drawn(Parity(), count=50, size=1, split=split) for split in ("train", "test")}
    empty = [split for split, instances in drawn_of.items() if (instances.inputs == 0).all()]
    assert empty == ["test"]
    assert (drawn_of["test"].targets == -1).all()
    assert not Parity().right(drawn_of["test"], drawn_of["test"].targets).any()


@pytest.mark.parametrize("problem", some(ALL, 0), ids=repr)
def test_texts_are_read_back(problem: Problem):
    instances = drawn(problem, least=1)
    for one, targets in zip(*instances, strict=True):
        text = problem.text(one)
        assert (problem.parse(text, size=7) == one).all()
        assert (problem.solve(one) == targets).all()
    shortest = problem.parse(text)
    assert problem.text(shortest) == text
    assert problem.text(shortest, problem.solve(shortest)) == problem.text(one, targets)


def test_texts():
    for problem, text, whole in [
        (Addition(), "95+39", "95+39=134"),
        (Addition(), " 007 + 0 ", "7+0=7"),
        (Addition(base=60), "1,59+1", "1,59+1=2,0"),
        (Multiplication(), "12×12", "12*12=144"),
        (PrefixSums(), "1011", "1011 → 1101"),
        (Parity(), "1011", "1011 → 1"),
        (Sorting(), "3142", "3142 → 1234"),
        (Reversal(base=16), "CAFE", "cafe → efac"),
    ]:
        inputs = problem.parse(text)
        assert problem.text(inputs, problem.solve(inputs)) == whole


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Addition(base=1), "base should be from 2 to 2^14, but is 1"),
        (lambda: Sorting(base=1), "base should be at least 2, but is 1"),
        (lambda: drawn(Sorting(), size=0), "size should be at least 1, but is 0"),
        (lambda: drawn(Sorting(), size=3, least=4), "least should be at most size (3), but is 4"),
        (lambda: drawn(Sorting(), split="valid"), "split should be 'train' or 'test', but is valid"),
        (lambda: Sorting().draw(jax.random.key(0), 0, 3), "count should be at least 1, but is 0"),
        (
            lambda: Multiplication(base=2**14).positions(9),
            "size should be from 1 to 7 in base 16384, but is 9",
        ),
        (lambda: Addition().parse("95"), "expected two numbers with + between them, but found '95'"),
        (lambda: Addition().parse("95+"), "expected digits, but found nothing; write for example 101"),
        (lambda: PrefixSums().parse("102"), "expected digits from 0 to 1 (base 2), but found '2' in '102'"),
        (
            lambda: Sorting(base=40).parse("1,x"),
            "expected digits from 0 to 39 (base 40), with commas between them, but found 'x' in '1,x'",
        ),
        (
            lambda: Addition().parse("95+39", size=1),
            "the longest number should be of at most 1 digits, but is of 2",
        ),
        (lambda: Sorting().parse("951", size=2), "the string should be of at most 2 digits, but is of 3"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(call, message: str):
    with pytest.raises(ProblemError) as error:
        call()
    assert str(error.value) == message
    assert isinstance(error.value, LapwingError)


@pytest.mark.slow
@pytest.mark.parametrize("problem", [Addition(), Reversal()], ids=repr)
def test_many_keys_at_once_are_the_same_as_one_by_one(problem: Problem):
    keys = jax.random.split(jax.random.key(1), 3)

    def draw(key):
        return problem.draw(key, 5, 4, "test", least=2)

    together = jax.jit(jax.vmap(draw))(keys)
    apart = [draw(key) for key in keys]
    for many, *ones in zip(together, *apart, strict=True):
        assert (many == jnp.stack(ones)).all()
    assert len(np.unique(np.asarray(together.inputs), axis=0)) == 3


def test_every_problem_has_a_name():
    assert all(kind().name == name for name, kind in PROBLEMS.items())
