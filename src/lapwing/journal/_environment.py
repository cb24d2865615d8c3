"""Host, versions and command line of a run: enough to repeat it, or to see why another run differs.

Versions come from the packages' metadata, so nothing is imported; the caller gives the device. Secrets are replaced
before anything is recorded, and of the variables only those are kept that change numbers or speed.
"""

import os
import platform
import socket
import subprocess
import sys
from importlib import metadata
from typing import Any

from ._recordable import recordable

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
