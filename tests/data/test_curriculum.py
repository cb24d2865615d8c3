"""A stage ends when it is mastered, and not before its time."""

import itertools

import jax.numpy as jnp
import pytest

from lapwing.data import Curriculum, SequenceError


def lengths(lessons: Curriculum, shares: list[float], longest: int = 6) -> list[int]:
    stage, seen = lessons.begin(longest), []
    for share in shares:
        stage = lessons.after(stage, jnp.float32(share), longest)
        seen.append(int(stage.length))
    return seen


def test_it_grows_only_while_answers_are_right():
    lessons = Curriculum(start=2, bound=0.5, least=5)
    assert lengths(lessons, [0.4] * 60) == [2] * 60
    grown = lengths(lessons, [1.0] * 100)
    assert grown[-1] == 6
    assert all(later - before in (0, 1) for before, later in itertools.pairwise(grown))


def test_a_stage_has_its_least_number_of_steps():
    grown = lengths(Curriculum(start=1, bound=0.0, least=7), [1.0] * 50)
    assert [grown.count(length) for length in (1, 2, 3)] == [6, 7, 7]


def test_the_smoothed_share_counts_and_begins_anew_with_each_stage():
    grown = lengths(Curriculum(start=1, bound=0.9, least=1), [1.0] * 50)
    assert [grown.count(length) for length in (1, 2)] == [21, 22]


def test_without_a_start_all_examples_have_the_full_length():
    assert lengths(Curriculum(), [1.0] * 3) == [6] * 3
    assert int(Curriculum(start=9).begin(6).length) == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bound": 1.0}, "curriculum.bound should be from 0 to below 1, but is 1.0"),
        ({"least": 0}, "curriculum.least"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, sentence: str):
    with pytest.raises(SequenceError, match=sentence):
        Curriculum(**options)
