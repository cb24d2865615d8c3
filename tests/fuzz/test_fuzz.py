"""A slice of `make fuzz`, and that it would find something."""

from pathlib import Path
from random import Random

import pytest

from tests.slow import some

from . import drive
from .kinds import COUNTS, KINDS

SLICE = {"runs": 40, "machines": 60, "idx": 60, "control": 100, "checkpoints": 100}


@pytest.mark.parametrize("kind", some(KINDS, 1, 2, 3, 4))
def test_what_is_read_may_be_anything(kind: str):
    found = drive.run(kind, range(SLICE[kind]))
    assert not found, "\n".join(f"{kind} {each.number}: {each.text}" for each in found[:3])


def test_every_kind_has_a_count():
    assert COUNTS.keys() == KINDS.keys() == SLICE.keys()


class Fails:
    """The third mutation raises, the fifth takes too long."""

    def __init__(self, place: Path, everything: bool):
        self._calls = -1  # The first call imports.

    def __call__(self, random: Random) -> None:
        self._calls += 1
        if self._calls == 3:
            raise KeyError("what the reader believed")
        while self._calls == 5:
            pass


def test_the_fuzzer_finds_exceptions_and_hangs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KINDS, "fails", Fails)
    monkeypatch.setattr(drive, "LIMIT_S", 0.1)
    error, hang = drive.run("fails", range(1, 9))
    assert (error.number, hang.number) == (3, 5)
    assert error.where.startswith("KeyError at the fuzzer")
    assert "what the reader believed" in error.text
    assert hang.where.startswith("TooLong at the fuzzer")
