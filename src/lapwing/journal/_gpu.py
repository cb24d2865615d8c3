"""Memory and use of the GPUs of a process, from the driver's own library, without a package and without a subprocess.

NVML counts the memory of all processes, and of what JAX has reserved for itself. So where JAX is in use, its own count
is taken (`jax_memory`): the bytes of the arrays and programs of this process.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

_LIBRARY = "libnvidia-ml.so.1"


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Gpus:
    """The NVIDIA GPUs that this process may use; none where there is no driver."""

    def __init__(self) -> None:
        self._devices: list[ctypes.c_void_p] = []
        with contextlib.suppress(OSError, AttributeError):  # No driver, or one without these functions.
            self._library = ctypes.CDLL(_LIBRARY)
            if self._library.nvmlInit_v2() == 0:
                self._devices = list(self._visible(os.environ.get("CUDA_VISIBLE_DEVICES")))

    def sample(self) -> dict[str, float]:
        """The use and the memory of each, as fields of a sample; what the driver does not say is left out."""
        found: dict[str, float] = {}
        for index, device in enumerate(self._devices):
            use, memory = _Use(), _Memory()
            if self._library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(use)) == 0:
                found[f"gpu{index}_percent"] = use.gpu
            if self._library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
                found[f"gpu{index}_memory_bytes"] = memory.used
        return found

    def _visible(self, variable: str | None) -> Iterator[ctypes.c_void_p]:
        """The devices that CUDA_VISIBLE_DEVICES names, by number or UUID, up to the first that there is not."""
        count = ctypes.c_uint()
        self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        words = map(str, range(count.value)) if variable is None else variable.split(",")
        for word in words:
            device, word = ctypes.c_void_p(), word.strip()
            if word.isdecimal():
                failed = self._library.nvmlDeviceGetHandleByIndex_v2(int(word), ctypes.byref(device))
            else:
                failed = self._library.nvmlDeviceGetHandleByUUID(word.encode(), ctypes.byref(device))
            if failed:
                return
            yield device


def jax_memory() -> dict[str, float]:
    """The bytes in use on each device of this process, where JAX is imported and counts them (not on a CPU).

    To be called only when JAX is in use: it would start JAX's backend.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return {}
    stats = {index: device.memory_stats() for index, device in enumerate(jax.local_devices())}
    return {
        f"gpu{index}_memory_bytes": found["bytes_in_use"]
        for index, found in stats.items()
        if found and "bytes_in_use" in found
    }
