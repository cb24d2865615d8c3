"""Numbers and lists as a person reads them."""

from collections.abc import Sequence


def format_seconds(seconds: float | None) -> str:
    """Three digits and a unit.

    >>> format_seconds(2.3610), format_seconds(0.00040857), format_seconds(None)
    ('2.36 s', '409 µs', '')
    """
    if seconds is None:
        return ""
    # A unit is left at 999.5, where three digits would round up to 1000 of it.
    for limit, factor, unit in ((999.5e-9, 1e9, "ns"), (999.5e-6, 1e6, "µs"), (999.5e-3, 1e3, "ms")):
        if seconds < limit:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{_three_digits(seconds)} s"


def format_wait(seconds: float) -> str:
    """A time to wait for, in the unit that a person would use.

    >>> format_wait(8.4), format_wait(700), format_wait(6000), format_wait(300_000)
    ('8 s', '12 min', '1.7 h', '3.5 days')
    """
    for size, unit, digits in ((86400.0, "days", 1), (3600.0, "h", 1), (60.0, "min", 0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}" if value else "0"


def format_bytes(amount: float) -> str:
    """Three digits and a unit.

    >>> format_bytes(512), format_bytes(20_100_000)
    ('512 B', '20.1 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def format_list(items: Sequence[str], most: int = 8) -> str:
    """The items as a phrase; of a long list only the beginning.

    >>> format_list(["a", "b", "c"], most=2)
    'a; b; and 1 more'
    """
    more = [f"and {len(items) - most} more"] if len(items) > most else []
    return "; ".join([*items[:most], *more])
