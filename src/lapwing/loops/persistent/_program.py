"""A loop with a kernel as a program that jax lowers.

The kernel is lowered twice, which takes a quarter of a second: first in a program of its own, and only if that works in
the program of the user, which a failure halfway would leave in pieces. Lowering is where Pallas builds a kernel and
checks it. It is not compiled twice: that takes longer, and jax 0.11 numbers its kernels, so that none is found again.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core

from lapwing.loops.persistent._prepare import Prepared
from lapwing.loops.persistent._shares import Shares

Program = Callable[..., list[Any]]


def kernel_program(prepared: Prepared, plan: Shares) -> Program:
    """The loop as a function of its flat inputs, with a kernel."""
    from lapwing.loops.persistent import _kernel  # Pallas takes a while to import.

    def persistent_loop(*values: Any) -> list[Any]:
        return prepared.run(lambda values: _kernel.run(prepared.stages, plan, values), values)

    return persistent_loop


def traced(program: Program, shapes: Sequence[jax.ShapeDtypeStruct]) -> core.ClosedJaxpr:
    """A program that jax can lower for a GPU, by now without fail."""
    with plain_settings():
        closed = jax.make_jaxpr(program)(*shapes)
        jax.jit(core.jaxpr_as_fun(closed)).trace(*shapes).lower(lowering_platforms=("cuda",))
        return closed


@contextlib.contextmanager
def plain_settings() -> Iterator[None]:
    """What the user's settings forbid or change in the user's code does not change a kernel, nor is what Pallas will
    call otherwise one day a warning for the user."""
    with (
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        jax.enable_x64(False),
        jax.disable_jit(False),
    ):
        yield
