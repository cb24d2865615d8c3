"""Programs to be read: made of operations of jax alone."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

_asked: contextvars.ContextVar[bool] = contextvars.ContextVar("only_operations", default=False)


def only_operations() -> bool:
    """Whether what is traced right now should be operations of jax alone: whoever has native code asks."""
    return _asked.get()


@contextlib.contextmanager
def _only_operations() -> Iterator[None]:
    token = _asked.set(True)
    try:
        # On the trace, for the key of jax's caches: what was jitted outside is traced again.
        with set_xla_metadata(lapwing_only_operations="true"):
            yield
    finally:
        _asked.reset(token)


def readable(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.make_jaxpr` for one who reads the program: what would be native code is the same in operations of jax.

    >>> readable(lambda x: x if only_operations() else 2 * x)(1.0)
    { lambda ; a:f32[]. let  in (a,) }
    """
    make = jax.make_jaxpr(function, **options)

    def trace(*args: Any, **kwargs: Any) -> Any:
        with _only_operations():
            return make(*args, **kwargs)

    return trace
