"""A point that needs more memory than there is: an error that says so, or a worker that the kernel kills.

The kernel says nothing to the one it kills, only SIGKILL does; but it counts, in /proc/vmstat.
"""

import re
import signal
from pathlib import Path

from lapwing.core import format_bytes

_ADVICE = "a smaller batch or model, or fewer --workers, may help"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_COUNTS = Path("/proc/vmstat")


def shortage_of(error: BaseException) -> str | None:
    """A sentence about an error that says that memory ran out, with the size asked for if it is known; else None.

    >>> shortage_of(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes."))
    'out of memory: 40 GB were asked for at once; a smaller batch or model, or fewer --workers, may help'
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not text.startswith("RESOURCE_EXHAUSTED"):
        return None
    size = _size_in(text)
    asked = "" if size is None else f": {format_bytes(size)} were asked for at once"
    return f"out of memory{asked}; {_ADVICE}"


def _size_in(text: str) -> int | None:
    """The size in a message of XLA ("Out of memory allocating 80 bytes") or of numpy ("Unable to allocate 8 GiB")."""
    if found := re.search(r"\b(\d+) ?(?:bytes|B)\b", text):
        return int(found[1])
    if found := re.search(r"\b([\d.]+) ?([KMGTPE])iB\b", text):
        return int(float(found[1]) * _UNITS[found[2]])
    return None


def count_kills(counts: Path = _COUNTS) -> int:
    """The number of processes that the kernel of this machine has killed for memory; 0 where it does not count."""
    try:
        return int(re.findall(r"^oom_kill (\d+)$", counts.read_text(), re.MULTILINE)[0])
    except (OSError, IndexError):
        return 0


def death_in_words(status: int, peak_bytes: int, kills: int) -> str:
    """How a worker died. **Arguments:** `kills` were made by the kernel, for memory, while the worker lived.

    >>> death_in_words(-9, 12_000_000_000, kills=1)
    'by the kernel, which was out of memory when it had 12 GB; a smaller batch or model, or fewer --workers, may help'
    >>> death_in_words(3, 0, kills=0)
    'with exit status 3'
    """
    if status >= 0:
        return f"with exit status {status}"
    if status == -signal.SIGKILL and kills:
        return f"by the kernel, which was out of memory when it had {format_bytes(peak_bytes)}; {_ADVICE}"
    return f"by {signal.Signals(-status).name}"
