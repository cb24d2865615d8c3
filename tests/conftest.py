"""How all tests compile: quickly, and each program once.

What the tests compare is numbers, not time, so XLA skips most optimizations; tests marked `optimized` look at compiled
code or its speed, and compile in full. `fit` compiles fresh closures in each test, and child processes start with
nothing, so workers and children share a folder of compiled programs. It survives a run: the key of an entry is the
whole program with the version and options of its compiler. Tracing and lowering, which is what Lapwing does, always run.
"""

import os
import signal
from pathlib import Path

# Child processes inherit these. A read of jax's variables happens at its import, so they come before it.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

import jax
import pytest
import tyro  # noqa: F401 - Before any doctest: it reads the builtins, where a doctest leaves its last answer as `_`.
from jax.experimental.compilation_cache import compilation_cache

# A shell that runs the tests in the background has Ctrl-C ignored, and children inherit that; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _compile_in_full(request: pytest.FixtureRequest):
    """Tests marked `optimized` compile with all optimizations, and never load a program that was compiled before."""
    if request.node.get_closest_marker("optimized") is None:
        yield
        return
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()
