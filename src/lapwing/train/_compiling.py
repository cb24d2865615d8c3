"""How the programs of a run are compiled, and what is recorded about it.

A GPU adds in whatever order its blocks finish, and XLA chooses between kernels by timing them, so two equal runs may
end with different parameters. With deterministic operations it does neither. That is an option of each program, not of
the process, so what a user compiles beside the training is as it was.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import jax

from ._config import FitConfig

# Where in the source an operation comes from, and the names that it got there.
_METADATA = re.compile(
    r", metadata=\{[^}]*\}|^(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d.*\n)*", re.M
)


def compiler_options(config: FitConfig) -> dict[str, Any]:
    """What XLA is asked for beside its defaults. On a CPU nothing: its operations are deterministic."""
    is_gpu = jax.default_backend() in ("gpu", "cuda", "rocm")
    return {"xla_gpu_deterministic_ops": True} if is_gpu and config.deterministic else {}


def fingerprint(compiled: Any) -> str:
    """The compiled program in 16 letters, with the kernels that were chosen, and without lines of source.

    >>> one, other = (jax.jit(function).lower(1.0).compile() for function in (lambda x: x + 1, lambda y: y + 1))
    >>> fingerprint(one) == fingerprint(other), len(fingerprint(one))
    (True, 16)
    """
    program = getattr(compiled, "func", compiled)  # It may have arrays bound to it.
    return hashlib.sha256(_METADATA.sub("", program.as_text()).encode()).hexdigest()[:16]


def backend_version() -> str:
    """Of XLA's platform, such as that of CUDA."""
    return " ".join(jax.devices()[0].client.platform_version.split())


def other_bits(elsewhere: Mapping[str, tuple[Any, Any]]) -> str:
    """Why the numbers of a resumed run may differ in their last bits, in words; empty if nothing says so.

    >>> other_bits({"versions.jax": ("0.10.1", "0.10.2"), "versions.lapwing": ("1", "2")})
    'from here on numbers may differ in their last bits from those of a run on one machine: jax 0.10.1 → 0.10.2'
    """
    named = {
        path.split(".")[-1]: pair
        for path, pair in elsewhere.items()
        if path == "device" or path.startswith(("versions.jax", "versions.nvidia", "variables.XLA_FLAGS"))
    }
    if not named:
        return ""
    changed = ", ".join(f"{name} {before} → {now}" for name, (before, now) in named.items())
    return f"from here on numbers may differ in their last bits from those of a run on one machine: {changed}"
