"""Machines for which a text is a signal over time, and two that read nothing."""

from ._builtin import accum, accum_add_args, compare, const_1, constant, dot, norm, output
from ._library import LibraryMachine, add, characters, reader
from ._machine import Machine

ONE = characters(**{"1": 1.0})


def oscillator() -> Machine:
    """x becomes x - y and y becomes x: whole numbers that return after six cycles."""
    m = Machine()
    links = {
        "x.dict-1": "x.dict",
        "x.dict-2": {"y.dict": -1.0},
        "y.dict-2": "x.dict",
        "output.dict-1": "x.dict",
        "output.dict-2": "y.dict",
    }
    add(m, {"x": accum, "y": accum, "output": output}, links)
    m.initial("x.dict", 1.0)
    return m


def wave() -> Machine:
    """A self-modifying machine: three neurons take turns in moving two links, the one that selects whose turn it is
    and the one that selects the level to answer."""
    m = Machine(matrix_from="self.result")
    add(m, {"self": accum_add_args, "output": output}, {})
    for k in (1, 2, 3):
        m.neuron(f"level-{k}", constant, value=float(k))
        m.initial(f"level-{k}.result", float(k))
    for k, following in ((1, 2), (2, 3), (3, 1)):
        turn = {f"update-{k}": {"result": -1.0}, f"update-{following}": {"result": 1.0}}
        level = {f"level-{k}": {"result": -1.0}, f"level-{following}": {"result": 1.0}}
        change = {"self": {"delta": turn}, "output": {"dict-1": level}}
        m.neuron(f"update-{k}", constant, value=change)
        m.initial(f"update-{k}.result", change)
    m.link("self.accum", "self.result", 1.0)
    m.link("self.delta", "update-1.result", 1.0)
    m.link("output.dict-1", "level-1.result", 1.0)
    return m


MACHINES = (
    LibraryMachine(
        "delay-line",
        "the signal, 1 at each 1; the signal three characters ago",
        reader(
            {"one": ONE, "signal": dot, "delay-1": accum, "delay-2": accum, "delay-3": accum},
            {
                "signal.dict-1": "input.char",
                "signal.dict-2": "one.result",
                "delay-1.dict-2": "signal.dot",
                "delay-2.dict-2": "delay-1.dict",
                "delay-3.dict-2": "delay-2.dict",
                "output.dict-1": "signal.dot",
                "output.dict-2": "delay-3.dict",
            },
        ),
        alphabet="01",
        examples={
            "010011010": {
                "dict-1": "0 0 | 0 1 0 0 1 1 0 1 0",
                "dict-2": "0 0 | 0 0 0 0 1 0 0 1 1",
            },
            "110101001": {
                "dict-1": "0 0 | 1 1 0 1 0 1 0 0 1",
                "dict-2": "0 0 | 0 0 0 1 1 0 1 0 1",
            },
        },
    ),
    LibraryMachine(
        "edges",
        "1 where the signal rises from 0 to 1; 1 where it falls",
        reader(
            {"one": ONE, "signal": dot, "late": norm, "change": compare},
            {
                "signal.dict-1": "input.char",
                "signal.dict-2": "one.result",
                "late.dict": "signal.dot",
                "change.dict-1": "signal.dot",
                "change.dict-2": "late.norm",
                "output.dict-1": "change.true",
                "output.dict-2": "change.false",
            },
        ),
        alphabet="01",
        examples={
            "011010011": {
                "dict-1": "0 0 0 | 0 1 0 0 1 0 0 1 0",
                "dict-2": "0 0 0 | 0 0 0 1 0 1 0 0 0",
            },
            "110010001": {
                "dict-1": "0 0 0 | 1 0 0 0 1 0 0 0 1",
                "dict-2": "0 0 0 | 0 0 1 0 0 1 0 0 0",
            },
        },
    ),
    LibraryMachine(
        "leaky-integrator",
        "a charge that halves at each character and grows by 1 at each 1; by how much it is more than 1.5",
        reader(
            {"one": ONE, "unit": const_1, "signal": dot, "charge": accum, "fires": compare},
            {
                "signal.dict-1": "input.char",
                "signal.dict-2": "one.result",
                "charge.dict-1": {"charge.dict": 0.5},
                "charge.dict-2": "signal.dot",
                "fires.dict-1": "charge.dict",
                "fires.dict-2": {"unit.const_1": 1.5},
                "output.dict-1": "charge.dict",
                "output.dict-2": "fires.true",
            },
        ),
        alphabet="01",
        examples={
            "1101001": {
                "dict-1": "0 0 0 | 1 1.5 0.75 1.375 0.6875 0.34375 1.171875",
                "dict-2": "0 0 0 0 | 0 0 0 0 0 0 0",
            },
            "0111101": {
                "dict-1": "0 0 0 | 0 1 1.5 1.75 1.875 0.9375 1.46875",
                "dict-2": "0 0 0 0 | 0 0 0 0.25 0.375 0 0",
            },
        },
    ),
    LibraryMachine(
        "maximum",
        "the largest digit so far; the digit",
        reader(
            {
                "digits": characters(**{f"{k}": float(k) for k in range(1, 10)}),
                "value": dot,
                "late": norm,
                "rest": compare,
            },
            {
                "value.dict-1": "input.char",
                "value.dict-2": "digits.result",
                "late.dict": "value.dot",
                # max(m, v) = v + the part of m above v
                "rest.dict-1": {"rest.true": 1.0, "late.norm": 1.0},
                "rest.dict-2": "value.dot",
                "output.dict-1": {"rest.true": 1.0, "late.norm": 1.0},
                "output.dict-2": "value.dot",
            },
        ),
        alphabet="0123456789",
        examples={
            "013205914": {
                "dict-1": "0 0 0 | 0 1 3 3 3 5 9 9 9",
                "dict-2": "0 0 | 0 1 3 2 0 5 9 1 4",
            },
            "604286370": {
                "dict-1": "0 0 0 | 6 6 6 6 8 8 8 8 8",
                "dict-2": "0 0 | 6 0 4 2 8 6 3 7 0",
            },
        },
    ),
    LibraryMachine(
        "latch",
        "whether the last s (set) came after the last r (reset)",
        reader(
            {
                "s": characters(s=1.0),
                "r": characters(r=1.0),
                "unit": const_1,
                "set": dot,
                "reset": dot,
                "above-0": compare,
                "above-1": compare,
            },
            {
                "set.dict-1": "input.char",
                "set.dict-2": "s.result",
                "reset.dict-1": "input.char",
                "reset.dict-2": "r.result",
                # the state + set - reset, kept between 0 and 1: the part above 0, minus the part above 1
                "above-0.dict-1": {"above-0.true": 1.0, "above-1.true": -1.0, "set.dot": 1.0},
                "above-0.dict-2": "reset.dot",
                "above-1.dict-1": {"above-0.true": 1.0, "above-1.true": -1.0, "set.dot": 1.0},
                "above-1.dict-2": {"reset.dot": 1.0, "unit.const_1": 1.0},
                "output.dict-1": {"above-0.true": 1.0, "above-1.true": -1.0},
            },
        ),
        alphabet="sra",
        examples={
            "asarasrar": {
                "dict-1": "0 0 0 | 0 1 1 0 0 1 0 0 0",
            },
            "rssasrasa": {
                "dict-1": "0 0 0 | 0 1 1 1 1 0 0 1 1",
            },
        },
    ),
    LibraryMachine(
        "oscillator",
        "two waves of whole numbers, of period 6",
        oscillator,
        examples={"": {"dict-1": "1 1 0 -1 -1 0 1 1", "dict-2": "0 1 1 0 -1 -1 0 1"}},
    ),
    LibraryMachine(
        "wave",
        "1, 2, 3, 1, 2, 3 …, by a link that moves: the machine rewrites its own matrix",
        wave,
        examples={"": {"dict-1": "1 2 3 1 2 3 1 2"}},
    ),
)
