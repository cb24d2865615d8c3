"""What each machine of the library should answer, in plain Python: a rule per answer, from the text so far to a number,
and the number of cycles after which the answer comes."""

from collections import Counter
from itertools import groupby


def _runs(text):
    return [len(list(group)) for _, group in groupby(text)]


def _charge(text):
    charge = 0.0
    for character in text:
        charge = charge / 2 + (character == "1")
    return charge


def _quoted(text):
    inside = [text[: i + 1].count("'") % 2 == 1 for i in range(len(text))]
    return sum(is_inside and c != "'" for is_inside, c in zip(inside, text, strict=True))


def _count(rule):
    return lambda text: sum(rule(text[: i + 1]) for i in range(len(text)))


def _found(text):
    return text.endswith("ab")


def _palindrome(text):
    return len(text) >= 3 and text[-1] == text[-3]


def _depth(text):
    return text.count("(") - text.count(")")


# Each answer: the cycles until the first character counts, and the rule for a text that is not empty.
RULES = {
    "duplicate-detector": {
        "dict-1": (4, lambda text: max(Counter(text).values()) - 1),
        "dict-2": (3, lambda text: text.count(".")),
    },
    "counter": {"dict-1": (3, lambda text: len(text) - 1 - text.rfind("."))},
    "histogram": {
        "dict-1": (2, lambda text: text[:-1].count(text[-1])),
        "dict-2": (3, lambda text: max(Counter(text).values())),
    },
    "vowels": {
        "dict-1": (3, lambda text: sum(c in "aeiou" for c in text)),
        "dict-2": (3, lambda text: sum(c not in "aeiou" for c in text)),
    },
    "words": {
        "dict-1": (4, lambda text: len(text.replace(".", " ").split())),
        "dict-2": (3, lambda text: sum(c not in " ." for c in text)),
    },
    "brackets": {"dict-1": (3, _depth), "dict-2": (4, lambda text: max(0, -_depth(text)))},
    "pattern": {"dict-1": (3, _found), "dict-2": (4, _count(_found))},
    "palindrome": {"dict-1": (2, _palindrome), "dict-2": (3, _count(_palindrome))},
    "run-length": {
        "dict-1": (3, lambda text: _runs(text)[-1], "0 1 1"),
        "dict-2": (2, lambda text: text[-1:] == text[-2:-1]),
    },
    "quotes": {"dict-1": (3, lambda text: text.count("'") % 2), "dict-2": (5, _quoted)},
    "parity": {"dict-1": (3, lambda text: text.count("1") % 2)},
    "delay-line": {
        "dict-1": (2, lambda text: text[-1] == "1"),
        "dict-2": (2, lambda text: text[-4:-3] == "1"),
    },
    "edges": {
        "dict-1": (3, lambda text: text[-1] == "1" and text[-2:-1] != "1"),
        "dict-2": (3, lambda text: text[-2:] == "10"),
    },
    "leaky-integrator": {"dict-1": (3, _charge), "dict-2": (4, lambda text: max(0, _charge(text) - 1.5))},
    "maximum": {"dict-1": (3, lambda text: int(max(text))), "dict-2": (2, lambda text: int(text[-1]))},
    "latch": {"dict-1": (3, lambda text: text.rfind("s") > text.rfind("r"))},
}


def written(name, text):
    """The answers as the library writes its examples."""
    found = {}
    for field, (delay, rule, *before) in RULES[name].items():
        start = before[0] if before else " ".join(["0"] * delay)
        answers = " ".join(f"{float(rule(text[: i + 1])):.17g}" for i in range(len(text)))
        found[field] = f"{start} | {answers}"
    return found
