"""What is compared here is numbers, not time: compile quickly."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _compile_quickly(request: pytest.FixtureRequest):
    if request.node.get_closest_marker("optimized") is not None:
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
