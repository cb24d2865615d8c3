"""How long a call takes until its results are there."""

import time
from collections.abc import Callable
from typing import Any

import jax


def seconds_of(function: Callable[..., Any], *args: Any) -> float:
    """Of one call; the caller has called it before, so that it is compiled."""
    started = time.perf_counter()
    jax.block_until_ready(function(*args))
    return time.perf_counter() - started
