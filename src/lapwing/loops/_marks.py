"""The mark of a loop that may become one kernel.

Which loops do is known only when they are lowered (`_lowering`), for `vmap` and `grad` change them after they were
traced. So a loop of `scan` carries a mark, as XLA metadata of its equation, which survives both. Its value says what
was asked of GPU kernels when the loop was traced (`use_persistent`).
"""

import contextlib
import dataclasses
from typing import Any

from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend import core

from lapwing import jaxprs
from lapwing.jaxprs import Loop
from lapwing.loops._mode import Mode, mode

MARK = "lapwing_may_be_one_kernel"


def may_be_one_kernel(loop: Loop) -> Loop:
    """The same loop, marked: what is left of it may become one kernel."""
    return dataclasses.replace(loop, marks=((MARK, mode()),))


def marked() -> contextlib.AbstractContextManager[None]:
    """The loops traced in here are marked."""
    return set_xla_metadata(**{MARK: mode()})


def unmarked() -> contextlib.AbstractContextManager[None]:
    """Those traced in here are not."""
    return set_xla_metadata(**{MARK: None})


def bind_marked(eqn: core.JaxprEqn, inputs: jaxprs.Values) -> list[Any]:
    """Run a `scan` equation as it is, marked."""
    with marked():
        return jaxprs.bind(eqn, inputs)


def mark_of(ctx: Any) -> Mode | None:
    """The mark of a `scan` equation with this context; None if it has none."""
    return (getattr(ctx, "xla_metadata", None) or {}).get(MARK)
