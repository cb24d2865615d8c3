"""What the tests compare is numbers, not time: compile quickly. Those marked `optimized` look at the compiled code."""

import signal

import jax
import pytest
import tyro  # noqa: F401 - Before any doctest: it reads the builtins, where a doctest leaves its last answer as `_`.

# A shell that runs the tests in the background has Ctrl-C ignored, and children inherit that; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _compile_quickly(request: pytest.FixtureRequest):
    if request.node.get_closest_marker("optimized") is not None:
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
