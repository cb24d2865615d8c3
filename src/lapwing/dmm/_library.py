"""A library of machines to start from: each with a name, one line on what it answers, and examples.

A name works wherever a file of a machine does: `Machine.load("parity")`, `lapwing dmm run parity --text 0110`. A file
of that name comes first. The machines themselves are tables in `_library_counting`, `_library_patterns` and
`_library_signals`.

Most read one character per cycle and are pipelines: an answer comes a fixed number of cycles after its character. So an
example is written as one text of numbers per answer, "0 0 0 | 1 1 2": those before the bar are the cycles until the
first character arrives, those after it belong to the characters, one each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lapwing.core import suggestion

from ._activation import Activation, MachineError
from ._builtin import constant, input_text, output, timer
from ._machine import Machine
from ._published import lite_start, readable_detector

Links = Mapping[str, str | Mapping[str, float]]


@dataclass(frozen=True)
class LibraryMachine:
    """A machine of the library.

    **Attributes**: `name`; `about`, what it answers; `build`, a function that makes it; `alphabet`, the characters that
    it is about, empty if it reads no text; `period`, the cycles per character; `examples`, texts with the expected
    answers, written as above; `published`, whether it is from a published experiment and not handcrafted.
    """

    name: str
    about: str
    build: Callable[[], Machine]
    alphabet: str = ""
    examples: Mapping[str, Mapping[str, str]] | None = None
    period: int = 1
    published: bool = False

    def targets(self) -> list[dict[str, Any]]:
        """Returns the examples with a number for each cycle, as `synthesis.Examples` and its files have them.

        >>> from lapwing import dmm
        >>> dmm.library()["oscillator"].targets()
        [{'text': '', 'targets': {'dict-1': [1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0],
                                  'dict-2': [0.0, 1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 1.0]}}]
        """
        found = []
        for text, answers in (self.examples or {}).items():
            numbers = {field: _numbers(written, self.period) for field, written in answers.items()}
            cycles = min(map(len, numbers.values()))
            targets = {field: numbers.get(field, [0.0] * cycles)[:cycles] for field in output.inputs}
            found.append({"text": text, "targets": targets})
        return found


def _numbers(written: str, period: int) -> list[float]:
    before, _, after = written.rpartition("|")
    return [*map(float, before.split()), *(float(word) for word in after.split() for _ in range(period))]


@cache
def library() -> dict[str, LibraryMachine]:
    """Returns the machines of the library, by name.

    >>> from lapwing import dmm
    >>> parity = dmm.library()["parity"]
    >>> parity.about
    'whether the number of 1s so far is odd'
    >>> dmm.interpret(parity.build(), 7, text="0110").answers["dict-1"]
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    # Imported here because they import this module.
    from . import _library_counting, _library_patterns, _library_signals

    handmade = [*_library_counting.MACHINES, *_library_patterns.MACHINES, *_library_signals.MACHINES]
    return {each.name: each for each in [*handmade, *PUBLISHED]}


def from_library(name: str) -> LibraryMachine:
    """Returns the machine of this name.

    >>> from_library("counter").name
    'counter'
    """
    known = library()
    if name not in known:
        raise MachineError(f"there is no machine {name!r} in the library; {suggestion(name, known)}")
    return known[name]


def reader(neurons: Mapping[str, Activation], links: Links) -> Callable[[], Machine]:
    """A machine that reads one character per cycle. `links` has for each input field what it reads: an output field,
    or several with their weights."""

    def build() -> Machine:
        m = Machine()
        clocked = {"timer": timer, "input": input_text.with_options(period=1)}
        add(m, {**clocked, **neurons, "output": output}, links)
        m.link("timer.timer", "timer.timer", 1.0, hard=True)
        m.link("input.timer", "timer.timer", 1.0, hard=True)
        return m

    return build


def add(m: Machine, neurons: Mapping[str, Activation], links: Links) -> None:
    """Adds neurons and links to a machine."""
    for name, activation in neurons.items():
        m.neuron(name, activation)
    for to, sources in links.items():
        for source, weight in ({sources: 1.0} if isinstance(sources, str) else sources).items():
            m.link(to, source, weight)


def characters(**values: float) -> Activation:
    """A constant with a number for some characters."""
    return constant.with_options(value=values)


PUBLISHED = (
    LibraryMachine(
        "readable-detector",
        "the duplicate detector as trained and pruned in a published run: 19 soft links, nearly right",
        readable_detector,
        alphabet="tes ring.",
        period=10,
        published=True,
    ),
    LibraryMachine(
        "dmm-lite",
        "DMM Lite with its published weights after 1032 steps: 851 links, from which the published losses start",
        lite_start,
        alphabet="tes ring.",
        period=10,
        published=True,
    ),
)
