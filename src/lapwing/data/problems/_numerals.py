"""Digits as people write them: 0 to 9 and a to z in bases up to 36, decimal numbers with commas in larger ones."""

from collections.abc import Sequence

from ._problem import ProblemError

_NUMERALS = "0123456789abcdefghijklmnopqrstuvwxyz"


def write_digits(digits: Sequence[int], base: int) -> str:
    """Writes digits in their order.

    >>> write_digits([1, 15], 16), write_digits([1, 59], 60)
    ('1f', '1,59')
    """
    if base <= len(_NUMERALS):
        return "".join(_NUMERALS[digit] for digit in digits)
    return ",".join(map(str, digits))


def read_digits(text: str, base: int) -> list[int]:
    """Reads what `write_digits` wrote.

    >>> read_digits("1f", 16), read_digits("1, 59", 60)
    ([1, 15], [1, 59])
    """
    small = base <= len(_NUMERALS)
    words = list(text.strip().lower()) if small else [word.strip() for word in text.split(",")]
    if not text.strip():
        raise ProblemError(
            "expected digits, but found nothing; write for example " + write_digits([1, 0, 1], base)
        )
    known = {write_digits([digit], base): digit for digit in range(base)}
    for word in words:
        if word not in known:
            last = write_digits([base - 1], base)
            between = "" if small else ", with commas between them"
            raise ProblemError(
                f"expected digits from 0 to {last} (base {base}){between}, but found {word!r} in {text.strip()!r}"
            )
    return [known[word] for word in words]
