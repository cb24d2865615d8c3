"""Machines that recognize what follows what: an answer depends on the order of the characters."""

from ._builtin import accum, const_1, dot, norm
from ._library import LibraryMachine, characters, reader

MACHINES = (
    LibraryMachine(
        "pattern",
        "whether the character is a b right after an a; how often that was so",
        reader(
            {
                "a": characters(a=1.0),
                "b": characters(b=1.0),
                "is-a": dot,
                "is-b": dot,
                "was-a": norm,
                "found": dot,
                "count": accum,
            },
            {
                "is-a.dict-1": "input.char",
                "is-a.dict-2": "a.result",
                "is-b.dict-1": "input.char",
                "is-b.dict-2": "b.result",
                "was-a.dict": "is-a.dot",
                "found.dict-1": "was-a.norm",
                "found.dict-2": "is-b.dot",
                "count.dict-1": "count.dict",
                "count.dict-2": "found.dot",
                "output.dict-1": "found.dot",
                "output.dict-2": "count.dict",
            },
        ),
        alphabet="abc",
        examples={
            "abcabbaab": {
                "dict-1": "0 0 0 | 0 1 0 0 1 0 0 0 1",
                "dict-2": "0 0 0 0 | 0 1 1 1 2 2 2 2 3",
            },
            "bacababcb": {
                "dict-1": "0 0 0 | 0 0 0 0 1 0 1 0 0",
                "dict-2": "0 0 0 0 | 0 0 0 0 1 1 2 2 2",
            },
        },
    ),
    LibraryMachine(
        "palindrome",
        "whether the last three characters are a palindrome; how often they were",
        reader(
            {"last": accum, "second": accum, "same": dot, "count": accum},
            {
                "last.dict-2": "input.char",
                "second.dict-2": "last.dict",
                "same.dict-1": "input.char",
                "same.dict-2": "second.dict",
                "count.dict-1": "count.dict",
                "count.dict-2": "same.dot",
                "output.dict-1": "same.dot",
                "output.dict-2": "count.dict",
            },
        ),
        alphabet="abc",
        examples={
            "abacbccca": {
                "dict-1": "0 0 | 0 0 1 0 0 1 0 1 0",
                "dict-2": "0 0 0 | 0 0 1 1 1 2 2 3 3",
            },
            "ccabbaaba": {
                "dict-1": "0 0 | 0 0 0 0 0 0 0 0 1",
                "dict-2": "0 0 0 | 0 0 0 0 0 0 0 0 1",
            },
        },
    ),
    LibraryMachine(
        "run-length",
        "how many times in a row the character was seen; whether it repeats the one before",
        reader(
            {"one": const_1, "last": accum, "same": dot, "repeats": dot},
            {
                "last.dict-2": "input.char",
                "same.dict-1": "input.char",
                "same.dict-2": "last.dict",
                "repeats.dict-1": {"repeats.dot": 1.0, "one.const_1": 1.0},
                "repeats.dict-2": "same.dot",
                "output.dict-1": {"repeats.dot": 1.0, "one.const_1": 1.0},
                "output.dict-2": "same.dot",
            },
        ),
        alphabet="ab",
        examples={
            "aabbbabaa": {
                "dict-1": "0 1 1 | 1 2 1 2 3 1 1 1 2",
                "dict-2": "0 0 | 0 1 0 1 1 0 0 0 1",
            },
            "abbbbaaab": {
                "dict-1": "0 1 1 | 1 1 2 3 4 1 2 3 1",
                "dict-2": "0 0 | 0 0 1 1 1 0 1 1 0",
            },
        },
    ),
    LibraryMachine(
        "quotes",
        "whether the text is inside quotes; the number of characters inside quotes so far",
        reader(
            {
                "quote": characters(**{"'": 1.0}),
                "seen": norm,
                "is-quote": dot,
                "inside": norm,
                "letter": norm,
                "quoted": dot,
                "count": accum,
            },
            {
                "seen.dict": "input.char",
                "is-quote.dict-1": "input.char",
                "is-quote.dict-2": "quote.result",
                # |inside - quote|: a quote toggles it
                "inside.dict": {"inside.norm": 1.0, "is-quote.dot": -1.0},
                "letter.dict": {"seen.norm": 1.0, "is-quote.dot": -1.0},
                "quoted.dict-1": "inside.norm",
                "quoted.dict-2": "letter.norm",
                "count.dict-1": "count.dict",
                "count.dict-2": "quoted.dot",
                "output.dict-1": "inside.norm",
                "output.dict-2": "count.dict",
            },
        ),
        alphabet="ab'",
        examples={
            "a'bb'a'ab": {
                "dict-1": "0 0 0 | 0 1 1 1 0 0 1 1 1",
                "dict-2": "0 0 0 0 0 | 0 0 1 2 2 2 2 3 4",
            },
            "'a'b''bab": {
                "dict-1": "0 0 0 | 1 1 0 0 1 0 0 0 0",
                "dict-2": "0 0 0 0 0 | 0 1 1 1 1 1 1 1 1",
            },
        },
    ),
    LibraryMachine(
        "parity",
        "whether the number of 1s so far is odd",
        reader(
            {"digit": characters(**{"1": 1.0}), "bit": dot, "parity": norm},
            {
                "bit.dict-1": "input.char",
                "bit.dict-2": "digit.result",
                "parity.dict": {"parity.norm": 1.0, "bit.dot": -1.0},
                "output.dict-1": "parity.norm",
            },
        ),
        alphabet="01",
        examples={
            "011010011": {
                "dict-1": "0 0 0 | 0 1 0 0 1 1 1 0 1",
            },
            "110010001": {
                "dict-1": "0 0 0 | 1 0 0 0 1 1 1 1 0",
            },
        },
    ),
)
