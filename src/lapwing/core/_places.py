"""Where Lapwing keeps what it can compute again: plans of kernels, compiled programs, copies of stores."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`lapwing` in the user's cache directory: `$XDG_CACHE_HOME`, by default `~/.cache`. It can be deleted at any time.

    >>> cache_folder().name
    'lapwing'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lapwing")
