"""Warnings, each once in a process: a loop that stays a loop is no reason to fill a terminal."""

import warnings

warned: set[str] = set()


def warn_once(about: str, what: str) -> None:
    """Say what went wrong, the first time that it is about this."""
    if about in warned:
        return
    warned.add(about)
    warnings.warn(
        f"{what}; results are unaffected, and lapwing.loops.use_persistent('off') or LAPWING_PERSISTENT=off turns "
        "persistent GPU kernels off",
        RuntimeWarning,
        stacklevel=2,
    )


def sentence(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
