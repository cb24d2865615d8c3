"""What every layer uses: the base of all errors, names and suggestions, atomic files, files that are not
trusted, formatting, figures, interrupts, and a filter for secrets.

It imports the standard library alone; matplotlib is imported when a picture is drawn.
"""

from ._canvas import new_figure, png_of
from ._errors import LapwingError
from ._files import replace_file, sync_folder
from ._format import format_bytes, format_list, format_seconds, format_wait
from ._interrupt import Interrupt, Preempted, end_after, interrupts, raised_interrupts
from ._names import Entry, Registry, UnknownNameError, closest, suggestion
from ._places import cache_folder
from ._secrets import REDACTED, hide_in_text, hide_secrets, is_certainly_secret
from ._text import plot_text, printable
from ._untrusted import DEEPEST, UnreadableError, check_json, open_regular, parse_json, read_regular

__all__ = [
    "DEEPEST",
    "REDACTED",
    "Entry",
    "Interrupt",
    "LapwingError",
    "Preempted",
    "Registry",
    "UnknownNameError",
    "UnreadableError",
    "cache_folder",
    "check_json",
    "closest",
    "end_after",
    "format_bytes",
    "format_list",
    "format_seconds",
    "format_wait",
    "hide_in_text",
    "hide_secrets",
    "interrupts",
    "is_certainly_secret",
    "new_figure",
    "open_regular",
    "parse_json",
    "plot_text",
    "png_of",
    "printable",
    "raised_interrupts",
    "read_regular",
    "replace_file",
    "suggestion",
    "sync_folder",
]
