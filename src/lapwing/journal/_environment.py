"""Host, versions and command line of a run: enough to repeat it, or to see why another run differs.

Versions come from the packages' metadata, so nothing is imported; the caller gives the device. Secrets are replaced
before anything is recorded, and of the variables only those are kept that change numbers or speed.
"""

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from lapwing.core import hide_in_text, hide_secrets, is_certainly_secret

from ._errors import JournalError
from ._story import flat

_PACKAGES = (
    "lapwing",
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
    "numpy",
    "nvidia-cublas-cu12",
    "nvidia-cublas",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "optax",
    "equinox",
    "flax",
    "torch",
)
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
    *("JAX_THREEFRY_GPU_KERNEL_LOWERING", "JAX_THREEFRY_PARTITIONABLE"),
)


def environment(device: str | None = None) -> dict[str, Any]:
    """The content of environment.json.

    >>> sorted(environment())
    ['command', 'cores', 'device', 'git', 'host', 'platform', 'python', 'variables', 'versions']
    """
    found = {
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "device": device,
        "host": socket.gethostname(),
        "cores": _usable_cores(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "variables": dict(sorted(os.environ.items())),
        "git": _git_state(),
    }
    return recordable(found)


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


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Not on macOS.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_state() -> dict[str, Any] | None:
    """The commit of the current folder, and whether tracked files differ from it; None outside a repository."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    if commit is None or changes is None:
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(*arguments: str) -> str | None:
    try:
        # Without optional locks, so that it never blocks a commit.
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
