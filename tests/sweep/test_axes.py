import enum
import random
from dataclasses import dataclass, field
from typing import Literal

import pytest

from lapwing.attacks import Norm, NormName
from lapwing.sweep import SweepError
from lapwing.sweep._axes import axis_of


@dataclass(frozen=True)
class Size:
    width: int = 8
    after: int | None = None
    kind: Literal["plain", "gated"] = "plain"
    norm: NormName | Norm = "linf"


class Activation(enum.Enum):
    TANH = "tanh"
    RELU = "relu"


@dataclass(frozen=True)
class Config:
    learning_rate: float = 0.1
    heads: Literal[2, 4] = 2
    activation: Activation = Activation.TANH
    steps_per_call: int = 1
    tied: bool = False
    text: str = ""
    pairs: tuple[int, ...] = ()
    size: Size = field(default_factory=Size)


@pytest.mark.parametrize(
    ("text", "path", "values"),
    [
        ("size.width=4..8", "size.width", [4, 5, 6, 7, 8]),
        ("size.width=8,2", "size.width", [8, 2]),
        ("learning_rate=0.1,1e-3", "learning_rate", [0.1, 0.001]),
        ("learning_rate=1", "learning_rate", [1.0]),
        ("tied=true,false", "tied", [True, False]),
        ("size.kind=gated,plain", "size.kind", ["gated", "plain"]),
        ("heads=4,2", "heads", [4, 2]),
        ("size.after=none,3", "size.after", [None, 3]),
        ("text=a=b,c..d", "text", ["a=b", "c..d"]),
        ("steps-per-call=1,2", "steps_per_call", [1, 2]),
        ("lr=0.1", "learning_rate", [0.1]),
        ("size.norm=l2,linf", "size.norm", ["l2", "linf"]),
    ],
)
def test_values_have_the_type_of_the_option(text: str, path: str, values: list):
    axis = axis_of(text, Config)
    assert (axis.path, list(axis.values)) == (path, values)
    assert [type(value) for value in axis.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "learning_rate",
            "'learning_rate' is not an axis; write OPTION=VALUES, such as learning_rate=0.1,0.01 or width=4..8",
        ),
        (
            "learning_rate=",
            "'learning_rate=' is not an axis; write OPTION=VALUES, such as learning_rate=0.1,0.01 or width=4..8",
        ),
        ("size.widht=1", "'size.widht' is not an option; did you mean size.width?"),
        ("size=1", "'size' is a group of options; name one of size.width, size.after, size.kind, size.norm"),
        ("seed=1..5", "seed is not an axis; `--seeds 5` runs every point with 5 seeds"),
        ("size.width=1.5", "size.width takes whole numbers, not '1.5'"),
        ("learning_rate=fast", "learning_rate takes numbers, not 'fast'"),
        ("tied=yes", "tied takes true or false, not 'yes'"),
        ("size.kind=gatd", "size.kind is one of plain, gated, not 'gatd'; did you mean gated?"),
        ("heads=3", "heads is one of 2, 4, not '3'; there are 2, 4"),
        (
            "activation=RELU",
            "activation cannot be swept over: only numbers, words, true and false can; write it as "
            "Literal['TANH', 'RELU']",
        ),
        ("pairs=1,2", "pairs cannot be swept over: only numbers, words, true and false can"),
        (
            "learning_rate=1..2..3",
            "learning_rate=1..2..3 should be a range LOW..HIGH, or a list, such as learning_rate=A,B",
        ),
        ("learning_rate=2..1", "learning_rate=2..1 should go from a smaller to a larger number"),
        (
            "learning_rate=0..1:log",
            "learning_rate=0..1:log should go from a smaller to a larger number, both above 0",
        ),
        (
            "learning_rate=1,2:log",
            "'learning_rate=1,2:log' is a list, and :log is for a range such as learning_rate=1e-4..1e-2:log",
        ),
        ("learning_rate=1,1.0", "'learning_rate=1,1.0' names a value twice; name each once"),
    ],
)
def test_what_is_no_axis_is_told_in_a_sentence(text: str, sentence: str):
    with pytest.raises(SweepError) as error:
        axis_of(text, Config)
    assert str(error.value) == sentence


def test_a_range_on_a_log_scale_is_drawn_evenly_from_each_power_of_ten():
    axis, chance = axis_of("learning_rate=1e-4..1e-2:log", Config), random.Random(1)
    drawn = [axis.draw(chance) for _ in range(1000)]
    assert 1e-4 <= min(drawn) < 2e-4
    assert 5e-3 < max(drawn) <= 1e-2
    assert 400 < sum(rate < 1e-3 for rate in drawn) < 600


def test_whole_numbers_stay_whole_when_drawn():
    axis, chance = axis_of("size.width=1..1000:log", Config), random.Random(1)
    drawn = [axis.draw(chance) for _ in range(100)]
    assert all(type(width) is int and 1 <= width <= 1000 for width in drawn)
    assert sum(width < 32 for width in drawn) > 30
