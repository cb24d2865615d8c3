"""Whether loops may become persistent GPU kernels: the option, and what is asked for right now."""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import Literal, get_args

from jax.experimental.xla_metadata import set_xla_metadata

from lapwing.loops._errors import LoopError

Mode = Literal["auto", "tune", "off"]
VARIABLE = "LAPWING_PERSISTENT"
_asked: contextvars.ContextVar[Mode | None] = contextvars.ContextVar("use_persistent", default=None)


@contextlib.contextmanager
def use_persistent(mode: Mode) -> Iterator[None]:
    """Loops traced in here become persistent GPU kernels, or not.

    A loop keeps the mode under which it is traced, and its gradient has the same. A function that is jitted outside is
    traced again in here, so that each mode has its own program. The default is that of the environment variable
    `LAPWING_PERSISTENT`, read when a loop is traced, or else `"auto"`.

    **Arguments**

    - `mode`: `"auto"`: a loop is a kernel where a model of the GPU, or an earlier `"tune"`, says that it is faster.
      `"tune"`: kernels of different plans and the ordinary loop are timed while the function is compiled, and the
      fastest is remembered on disk. Plans differ in the order of sums, so the last bits of the results depend on which
      one wins; that is why it is not the default. `"off"`: no loop becomes a kernel.

    **Raises** a LoopError for another mode.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> @jax.jit
    ... def last(w, xs):
    ...     return lw.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((2, 3)), xs)[0]
    >>> with lw.loops.use_persistent("off"):
    ...     last(jnp.eye(3), jnp.ones((5, 2, 3))).shape
    (2, 3)
    """
    token = _asked.set(_checked(mode, "the mode"))
    try:
        # On the trace, for the key of jax's caches.
        with set_xla_metadata(lapwing_persistent=mode):
            yield
    finally:
        _asked.reset(token)


def mode() -> Mode:
    """What is asked for right now."""
    return _asked.get() or _checked(os.environ.get(VARIABLE) or "auto", VARIABLE)


def _checked(given: str, what: str) -> Mode:
    for each in get_args(Mode):
        if given == each:
            return each
    raise LoopError(f"{what} must be 'auto', 'tune' or 'off', not {given!r}")
