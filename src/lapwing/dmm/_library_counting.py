"""Machines that count and sum."""

from ._builtin import accum, compare, const_1, dot, eos, norm
from ._library import LibraryMachine, characters, reader
from ._published import duplicate_detector

VOWELS = characters(a=1.0, e=1.0, i=1.0, o=1.0, u=1.0)

MACHINES = (
    LibraryMachine(
        "duplicate-detector",
        "how many times more than once some character was seen; how many full stops there were",
        duplicate_detector,
        alphabet="abcd.",
        examples={
            "aab.": {
                "dict-1": "0 0 0 0 | 0 1 1 1",
                "dict-2": "0 0 0 | 0 0 0 1",
            },
            "a..b": {
                "dict-1": "0 0 0 0 | 0 0 1 1",
                "dict-2": "0 0 0 | 0 1 2 2",
            },
            "abcd": {
                "dict-1": "0 0 0 0 | 0 0 0 0",
                "dict-2": "0 0 0 | 0 0 0 0",
            },
        },
        period=10,
    ),
    LibraryMachine(
        "counter",
        "the number of characters since the last full stop",
        reader(
            {"eos": eos, "one": const_1, "seen": norm, "stop": dot, "count": dot},
            {
                "seen.dict": "input.char",
                "stop.dict-1": "input.char",
                "stop.dict-2": "eos.char",
                # (the count so far + 1) times 0 at a full stop and 1 elsewhere
                "count.dict-1": {"count.dot": 1.0, "seen.norm": 1.0},
                "count.dict-2": {"one.const_1": 1.0, "stop.dot": -1.0},
                "output.dict-1": "count.dot",
            },
        ),
        alphabet="ab.",
        examples={
            "ab.aabb.a": {
                "dict-1": "0 0 0 | 1 2 0 1 2 3 4 0 1",
            },
            "..b.aba.b": {
                "dict-1": "0 0 0 | 0 0 1 0 1 2 3 0 1",
            },
        },
    ),
    LibraryMachine(
        "histogram",
        "how often the character was seen before; how often the most frequent one was seen",
        reader(
            {"counts": accum, "before": dot, "most": norm},
            {
                "counts.dict-1": "counts.dict",
                "counts.dict-2": "input.char",
                "before.dict-1": "input.char",
                "before.dict-2": "counts.dict",
                "most.dict": "counts.dict",
                "output.dict-1": "before.dot",
                "output.dict-2": "most.norm",
            },
        ),
        alphabet="abcd",
        examples={
            "abcabdaab": {
                "dict-1": "0 0 | 0 0 0 1 1 0 2 3 2",
                "dict-2": "0 0 0 | 1 1 1 2 2 2 3 4 4",
            },
            "ddcbbbdca": {
                "dict-1": "0 0 | 0 1 0 0 1 2 2 1 0",
                "dict-2": "0 0 0 | 1 2 2 2 2 3 3 3 3",
            },
        },
    ),
    LibraryMachine(
        "vowels",
        "the number of vowels so far; the number of other characters",
        reader(
            {"vowels": VOWELS, "seen": norm, "vowel": dot, "count": accum, "others": accum},
            {
                "seen.dict": "input.char",
                "vowel.dict-1": "input.char",
                "vowel.dict-2": "vowels.result",
                "count.dict-1": "count.dict",
                "count.dict-2": "vowel.dot",
                "others.dict-1": "others.dict",
                "others.dict-2": {"seen.norm": 1.0, "vowel.dot": -1.0},
                "output.dict-1": "count.dict",
                "output.dict-2": "others.dict",
            },
        ),
        alphabet="aeioubcd",
        examples={
            "bacadeeco": {
                "dict-1": "0 0 0 | 0 1 1 2 2 3 4 4 5",
                "dict-2": "0 0 0 | 1 1 2 2 3 3 3 4 4",
            },
            "uobcdicab": {
                "dict-1": "0 0 0 | 1 2 2 2 2 3 3 4 4",
                "dict-2": "0 0 0 | 0 0 1 2 3 3 4 4 5",
            },
        },
    ),
    LibraryMachine(
        "words",
        "the number of words so far; the number of letters",
        reader(
            {
                "gaps": characters(**{" ": 1.0, ".": 1.0}),
                "seen": norm,
                "gap": dot,
                "late": accum,
                "begins": compare,
                "words": accum,
                "letters": accum,
            },
            {
                "seen.dict": "input.char",
                "gap.dict-1": "input.char",
                "gap.dict-2": "gaps.result",
                # a letter is a character that is no gap; a word begins where one follows a gap
                "late.dict-2": {"seen.norm": 1.0, "gap.dot": -1.0},
                "begins.dict-1": {"seen.norm": 1.0, "gap.dot": -1.0},
                "begins.dict-2": "late.dict",
                "words.dict-1": "words.dict",
                "words.dict-2": "begins.true",
                "letters.dict-1": "letters.dict",
                "letters.dict-2": {"seen.norm": 1.0, "gap.dot": -1.0},
                "output.dict-1": "words.dict",
                "output.dict-2": "letters.dict",
            },
        ),
        alphabet="ab .",
        examples={
            "a ab. bab.": {
                "dict-1": "0 0 0 0 | 1 1 2 2 2 2 3 3 3 3",
                "dict-2": "0 0 0 | 1 1 2 3 3 3 4 5 6 6",
            },
            " b..ba a b": {
                "dict-1": "0 0 0 0 | 0 1 1 1 2 2 2 3 3 4",
                "dict-2": "0 0 0 | 0 1 1 1 2 3 3 4 4 5",
            },
        },
    ),
    LibraryMachine(
        "brackets",
        "how deep in brackets the text is; how many more were closed than opened",
        reader(
            {"brackets": characters(**{"(": 1.0, ")": -1.0}), "step": dot, "depth": accum, "below": compare},
            {
                "step.dict-1": "input.char",
                "step.dict-2": "brackets.result",
                "depth.dict-1": "depth.dict",
                "depth.dict-2": "step.dot",
                "below.dict-2": "depth.dict",
                "output.dict-1": "depth.dict",
                "output.dict-2": "below.true",
            },
        ),
        alphabet="()a",
        examples={
            "(a(())())": {
                "dict-1": "0 0 0 | 1 1 2 3 2 1 2 1 0",
                "dict-2": "0 0 0 0 | 0 0 0 0 0 0 0 0 0",
            },
            "())a)((a)": {
                "dict-1": "0 0 0 | 1 0 -1 -1 -2 -1 0 0 -1",
                "dict-2": "0 0 0 0 | 0 0 1 1 2 1 0 0 1",
            },
        },
    ),
)
