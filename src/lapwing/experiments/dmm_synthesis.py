"""Synthesis of a machine that a person can read: 1486 links are trained from random starts on the answers of the
handcrafted duplicate detector, and pruned as far as possible. Published: 30 hours of training and weeks of pruning by
hand gave one machine of 19 links, which is right for 140 cycles with few full stops (docs/story.md).
"""

import random
from dataclasses import dataclass
from typing import Literal

from lapwing import dmm
from lapwing.dmm import Machine
from lapwing.synthesis import Examples, SynthesisConfig, synthesis_task
from lapwing.task import Task

from ._dmm import TEXT

# Few different characters make short arrays; a machine treats all characters but the full stop alike.
TEXTS = ("test.set.tt.", "sssssse.t.t.", "tsetsesstets", "e..s.ttst.ee")
LONG_TEXTS = ("tes.t..sett.ssst.tte..est", "tttes.")

# The final tests are read every ten cycles, as published.
CHECK_CYCLES = 140
NEW_LENGTHS = (1, 2, 3, 5, 7, 8, 10, 15, 18, 21, 28, 30, 33, 36, 40)
NEW_CHARACTERS = "abcdfghijklmnopqruvwxyz ABCXYZ0123456789,;:!?-äßλπж漢"
NEW_CYCLES = 420
STUDENTS = {
    "feedforward": (5, (dmm.accum, dmm.norm, dmm.compare, dmm.dot)),
    "compare-free": (6, (dmm.accum, dmm.norm, dmm.dot)),
}


@dataclass(frozen=True)
class Config(SynthesisConfig):
    """Machines learn to detect duplicate characters, and are pruned until they can be read."""

    steps: int = 100_000
    lasso: float = 0.01
    bound: float = 0.03
    student: Literal["feedforward", "compare-free"] = "feedforward"
    """compare-free: without the compare neurons; what is more than 1 is then the largest of a count and 1, less 1"""
    texts: tuple[str, ...] = TEXTS
    """the texts that the machines read"""
    period: int = 4
    """cycles from one character to the next while machines learn; the final tests read every ten, as published"""
    cycles: int = 56
    """cycles of a run"""
    long_texts: tuple[str, ...] = LONG_TEXTS
    """further texts, for small machines"""
    long_cycles: int = 100
    """cycles of a run on these"""
    check_text: str = TEXT
    """the final test uses it and new texts of its length and characters"""
    layers: int = 0
    """layers of the student; 0: as published, which is 5, or 6 without compares"""
    width: int = 2
    """neurons of each kind in each layer of the student: accumulators, norms, compares and dots"""


def build(config: Config) -> Task:
    examples, student, tests = parts(config)
    return synthesis_task(examples, student, config, tests=tests)


def parts(config: Config) -> tuple[list[Examples], Machine, dict[str, Examples]]:
    """The examples to learn from, the student, and the tests: the examples, and texts that training never sees."""
    teacher = dmm.duplicate_detector()
    layers, activations = STUDENTS[config.student]
    student = dmm.feedforward_student(config.layers or layers, config.width, activations)
    groups = {"seen": (config.texts, config.cycles), "long": (config.long_texts, config.long_cycles)}
    examples = {
        name: Examples.from_teacher(teacher, texts, cycles, period=config.period)
        for name, (texts, cycles) in groups.items()
        if texts
    }
    unseen = Examples.from_teacher(teacher, (config.check_text, *shuffled(config.check_text)), CHECK_CYCLES)
    new = Examples.from_teacher(teacher, new_texts(), NEW_CYCLES)
    return list(examples.values()), student, {**examples, "unseen": unseen, "new": new}


def shuffled(text: str, count: int = 20) -> list[str]:
    """New texts of the same length and characters; deterministic.

    >>> shuffled("abc.", 2)
    ['ccaa', 'baca']
    """
    draw = random.Random(0)
    return ["".join(draw.choices(sorted(set(text)), k=len(text))) for _ in range(count)]


def new_texts() -> list[str]:
    """Texts of lengths and characters that no machine was trained on; each has its own few characters and full stops.
    Deterministic.

    >>> new_texts()[3:5]
    ['bXbAb', '.??8a88']
    """
    draw = random.Random(1)
    alphabets = [[*draw.sample(NEW_CHARACTERS, 5), "."] for _ in NEW_LENGTHS]
    return ["".join(draw.choices(few, k=length)) for few, length in zip(alphabets, NEW_LENGTHS, strict=True)]
