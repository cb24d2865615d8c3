"""The GPU that kernels are planned for."""

import dataclasses

import jax

from lapwing.loops.persistent._plan import Gpu

# Of a device's compute capability. The kernel multiplies with `wgmma`, which later generations do not have.
HOPPER = "9."


@dataclasses.dataclass(frozen=True)
class Device:
    kind: str
    gpu: Gpu


def device_here() -> Device | None:
    """The GPU of this process, if it can run kernels."""
    try:
        found = jax.local_devices(backend="gpu")[0]
    except RuntimeError:
        return None
    if not str(getattr(found, "compute_capability", "")).startswith(HOPPER):
        return None
    return Device(found.device_kind, Gpu(multiprocessors=getattr(found, "core_count", Gpu.multiprocessors)))
