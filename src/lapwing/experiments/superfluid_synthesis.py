"""Superfluid synthesis: 16 neurons that mix four functions, with 2886 trained numbers, learn the answers of the
handcrafted duplicate detector. Then each neuron is reduced to one function, and the links are pruned as far as
possible. The published superfluid run, with 2906 trained numbers, stalled (docs/synthesis.md).
"""

import random
from dataclasses import dataclass

from lapwing import dmm
from lapwing.synthesis import Examples, Superfluid, SuperfluidConfig, superfluid_task
from lapwing.task import Task

from .dmm_synthesis import LONG_TEXTS, TEXTS

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 "
TEST_CYCLES = 250


@dataclass(frozen=True)
class Config(SuperfluidConfig):
    """Machines with mixed functions learn to detect duplicate characters, and become machines with one function a
    neuron and few links."""

    texts: tuple[str, ...] = TEXTS
    """the texts that the machines read"""
    period: int = 4
    """cycles from one character to the next; the tests have 10"""
    cycles: int = 52
    """cycles of a run"""
    long_texts: tuple[str, ...] = LONG_TEXTS
    """further texts, for small machines"""
    long_cycles: int = 108
    """cycles of a run on these"""
    unseen: int = 20
    """new texts of other lengths and characters, for the final test of all machines"""
    layers: int = 4
    """layers of the student"""
    width: int = 4
    """fluid neurons in each layer of the student"""


def build(config: Config) -> Task:
    teacher = dmm.duplicate_detector()
    students = dmm.fluid_student(config.layers, config.width), dmm.plain_student(config.layers, config.width)
    groups = ((config.texts, config.cycles), (config.long_texts, config.long_cycles))
    examples = [
        Examples.from_teacher(teacher, texts, cycles, period=config.period)
        for texts, cycles in groups
        if texts
    ]
    tests = {"unseen": Examples.from_teacher(teacher, unseen_texts(config.unseen), TEST_CYCLES)}
    return superfluid_task(Superfluid(examples, students, config, period=config.period), tests)


def unseen_texts(count: int) -> list[str]:
    """Texts of 3 to 24 characters, most of which no machine was trained on; deterministic.

    >>> unseen_texts(3)
    ['hqeh.q...e.. q . ', 'o....o..1p', '8..88hv.1v8m']
    """
    draw = random.Random(1)
    texts = []
    for _ in range(count):
        known = draw.sample(ALPHABET, draw.randint(2, 12)) + ["."] * draw.randint(0, 4)
        texts.append("".join(draw.choices(known, k=draw.randint(3, 24))))
    return texts
