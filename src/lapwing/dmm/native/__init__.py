"""Native code for the run of one machine on a CPU, and for its derivative; with the extra `native` (llvmlite).

XLA runs a machine as hundreds of small operations, and starting those takes longer than what they compute. Here the
whole run is one function, and so is its derivative (docs/performance-dmm.md).
"""

import importlib.util
from typing import TYPE_CHECKING, Any

import jax

from lapwing.dmm._activation import MachineError
from lapwing.dmm._compile_lanes import LanesError
from lapwing.dmm._compile_stages import Staged, Streams
from lapwing.dmm._layout_flow import Flow
from lapwing.dmm._layout_stages import Plan
from lapwing.jaxprs import only_operations

from ._merge import Merged

if TYPE_CHECKING:
    from ._primitives import Native


def is_installed() -> bool:
    return importlib.util.find_spec("llvmlite") is not None


# XLA's batches fill the vectors of the processor with machines, and start an operation once for all. Native code runs
# one machine after the other, and fills vectors with the links of a large one (docs/performance-dmm.md).
MANY_RUNS = 32
MANY_LINKS = 500


def native_run(
    flow: Flow, plan: Plan, cycles: int, staged: Staged, *, texts: int = 1, required: bool = False
) -> Staged:
    """As `staged(values, streams)`, which gives the answers of a machine or of a batch of them, in native code where it
    can be, and is faster for this number of texts; if it is `required`, always, and what cannot be raises an error."""
    merged = Merged(flow, plan, cycles)
    made: dict[Any, Native | None] = {}

    def native(dtype: Any) -> "Native | None":
        if dtype not in made:
            try:
                made[dtype] = _made(merged, dtype, staged)
            except LanesError as error:
                if required:
                    raise MachineError(f'{error}; compile the machine with engine="xla"') from error
                made[dtype] = None
        return made[dtype]

    def answers(values: jax.Array, streams: Streams) -> jax.Array:
        runs = texts * (values.shape[1] if values.ndim == 2 else 1)
        # A batch may be spread over devices, and native code is for one.
        few = jax.device_count() == 1 and (runs < MANY_RUNS or merged.links > MANY_LINKS)
        is_faster = values.ndim == 1 or few
        if jax.default_backend() != "cpu" or only_operations() or not (required or is_faster):
            return staged(values, streams)
        if (found := native(values.dtype)) is None:
            return staged(values, streams)
        run = found.run if values.ndim == 1 else jax.vmap(found.run, (-1, None), -1)
        return run(values, streams)

    return answers


def _made(merged: Merged, dtype: Any, staged: Staged) -> "Native":
    try:
        from ._primitives import Native
    except (
        ImportError,
        AttributeError,
    ) as error:  # What an operation of jax needs has moved in a later release.
        raise LanesError(f"native code needs another release of jax ({error})") from error
    return Native(merged, dtype, staged)
