"""How the programs of a run are compiled, so that it computes the same bits every time, and what is recorded about it.

Two things on a GPU are not the same every time. XLA chooses between kernels by timing them, so the next process may get
another program; therefore compiled programs are kept, in a folder of the user's. And some kernels add in whatever order
their blocks finish: those of scatters and convolutions. A program with such operations is compiled with deterministic
ones instead, and without timing; for others that would be a loss, of up to 1.8 times the time of small steps. The
gradient of max pooling has no deterministic kernel.
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.extend import core

from lapwing import jaxprs
from lapwing.core import cache_folder

from ._config import FitConfig

# Where in the source an operation comes from, and the names that it got there.
_METADATA = re.compile(
    r", metadata=\{[^}]*\}|^(FileNames|FunctionNames|FileLocations|StackFrames)\n(\d.*\n)*", re.M
)
_IN_ANY_ORDER = ("scatter_add", "scatter_mul", "conv_general_dilated")
_NEVER_IN_ORDER = ("select_and_scatter_add",)
_DETERMINISTIC = {"xla_gpu_deterministic_ops": True}
_KEPT_DAYS = 30


def _is_gpu() -> bool:
    return jax.default_backend() in ("gpu", "cuda", "rocm")


def keep_programs(config: FitConfig) -> None:
    """From now on jax keeps compiled programs on disk, unless it does already or was told not to."""
    if not (_is_gpu() and config.deterministic) or jax.config.values["jax_compilation_cache_dir"]:
        return
    folder = cache_folder() / "programs"
    for entry in folder.glob("*"):
        with contextlib.suppress(OSError):  # Another process may have deleted it.
            if entry.stat().st_mtime < time.time() - _KEPT_DAYS * 24 * 3600:
                entry.unlink()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache.reset_cache()


class HowCompiled(NamedTuple):
    """What XLA is asked for beside its defaults, and what that means for the bits of a run, in words; empty on a CPU,
    whose operations are deterministic."""

    options: dict[str, Any]
    words: str


def how_to_compile(config: FitConfig, program: core.Jaxpr) -> HowCompiled:
    """As the operations of a program need it."""
    if not _is_gpu():
        return HowCompiled({}, "")
    if not config.deterministic:
        return HowCompiled({}, "equal runs may differ in their bits: `deterministic` is off")
    found = set(_unordered(program))
    if found & {*_NEVER_IN_ORDER}:
        return HowCompiled(
            {}, "equal runs may differ in their bits: max pooling's gradient is never the same on a GPU"
        )
    if found:
        return HowCompiled(
            dict(_DETERMINISTIC), f"deterministic operations, because of {', '.join(sorted(found))}"
        )
    return HowCompiled({}, "compiled programs are kept: equal runs on this machine have equal bits")


def _unordered(program: core.Jaxpr) -> Iterator[str]:
    """The operations of a program that a GPU may compute in another order each time."""
    for eqn in jaxprs.equations(program):
        name = eqn.primitive.name.replace("-", "_")
        if name in (*_IN_ANY_ORDER, *_NEVER_IN_ORDER) and not eqn.params.get("unique_indices"):
            yield name


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
