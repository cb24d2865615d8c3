"""Synthesis of a machine that a person can read: 1486 links are trained from random starts on the answers of the
handcrafted duplicate detector, and pruned as far as possible. Published: 30 hours of training and weeks of pruning by
hand gave one machine of 19 links, which is right for 140 cycles with few full stops (docs/story.md).
"""

import random
from dataclasses import dataclass

from lapwing import dmm
from lapwing.synthesis import Examples, SynthesisConfig, synthesis_task
from lapwing.task import Task

from ._dmm import TEXT

# Few different characters make short arrays; a machine treats all characters but the full stop alike.
TEXTS = ("test.set.tt.", "sssssse.t.t.", "tsetsesstets", "e..s.ttst.ee")
LONG_TEXTS = ("tes.t..sett.ssst.tte..est", "tttes.")


@dataclass(frozen=True)
class Config(SynthesisConfig):
    """Machines learn to detect duplicate characters, and are pruned until they can be read."""

    texts: tuple[str, ...] = TEXTS
    """the texts that the machines read, a character every ten cycles"""
    cycles: int = 140
    """cycles of a run"""
    long_texts: tuple[str, ...] = LONG_TEXTS
    """further texts, for small machines"""
    long_cycles: int = 250
    """cycles of a run on these"""
    check_text: str = TEXT
    """the final test uses it and new texts of its length and characters"""
    layers: int = 5
    """layers of the student"""
    width: int = 2
    """accumulators, norms, compares and dots in each layer of the student"""


def build(config: Config) -> Task:
    teacher = dmm.duplicate_detector()
    student = dmm.feedforward_student(config.layers, config.width)
    groups = {"seen": (config.texts, config.cycles), "long": (config.long_texts, config.long_cycles)}
    examples = {
        name: Examples.from_teacher(teacher, texts, cycles)
        for name, (texts, cycles) in groups.items()
        if texts
    }
    unseen = Examples.from_teacher(teacher, (config.check_text, *shuffled(config.check_text)), config.cycles)
    return synthesis_task(list(examples.values()), student, config, tests={**examples, "unseen": unseen})


def shuffled(text: str, count: int = 20) -> list[str]:
    """New texts of the same length and characters; deterministic.

    >>> shuffled("abc.", 2)
    ['ccaa', 'baca']
    """
    draw = random.Random(0)
    return ["".join(draw.choices(sorted(set(text)), k=len(text))) for _ in range(count)]
