"""What may be recorded of an environment and of settings: no secrets, and only variables that change numbers."""

from collections.abc import Mapping
from typing import Any

from lapwing.core import hide_in_text, hide_secrets, is_certainly_secret

from ._errors import JournalError
from ._story import flat

# These variables change the numbers or the speed of a run. Others that start with JAX_ may name folders and accounts.
_VARIABLES = (
    *("CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE"),
    *("OMP_NUM_THREADS", "ROCR_VISIBLE_DEVICES", "TF_CUDNN_DETERMINISTIC", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"),
    *("JAX_CPU_ENABLE_ASYNC_DISPATCH", "JAX_CUDA_VISIBLE_DEVICES", "JAX_DEBUG_INFS", "JAX_DEBUG_NANS"),
    *("JAX_DEFAULT_DTYPE_BITS", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_PRNG_IMPL", "JAX_DISABLE_JIT"),
    *("JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_ENABLE_CUSTOM_PRNG", "JAX_ENABLE_PGLE", "JAX_ENABLE_X64"),
    *("JAX_NUMPY_DTYPE_PROMOTION", "JAX_NUMPY_RANK_PROMOTION", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"),
    *("JAX_PLATFORM_NAME", "JAX_RANDOM_SEED_OFFSET", "JAX_ROCM_VISIBLE_DEVICES", "JAX_SOFTMAX_CUSTOM_JVP"),
    *("JAX_THREEFRY_GPU_KERNEL_LOWERING", "JAX_THREEFRY_PARTITIONABLE", "LAPWING_PERSISTENT"),
)


def recordable(found: Mapping[str, Any]) -> dict[str, Any]:
    """A description of an environment, perhaps by an earlier version, without what should not be recorded.

    >>> recordable({"command": ["train", "--token=abc"], "variables": {"JAX_PLATFORMS": "cpu", "JAX_TOKEN": "abc"}})
    {'command': ['train', '--token=REDACTED'], 'variables': {'JAX_PLATFORMS': 'cpu'}}
    """
    kept = dict(found)
    if isinstance(command := kept.get("command"), list):
        kept["command"] = hide_secrets(list(map(str, command)))
    if isinstance(variables := kept.get("variables"), Mapping):
        kept["variables"] = {
            name: hide_in_text(str(text)) for name, text in variables.items() if name in _VARIABLES
        }
    return kept


def refuse_secrets(settings: Any) -> None:
    """Settings are recorded as they are, since a run is resumed with them; so a secret cannot be one."""
    for path, value in flat(settings) if isinstance(settings, Mapping) else ():
        if isinstance(value, str) and value and is_certainly_secret(path):
            raise JournalError(
                f"the setting {path!r} looks like a secret, and a run records its settings; read it from an "
                "environment variable or a file instead, and leave it out of the config"
            )
