"""A cache of keys that is written in place, which worked on a CPU and failed on a GPU (docs/story.md)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lapwing.check import CheckError, purity


class Decoder:
    """Keeps the keys it has seen. In place, all calls return the same memory."""

    def __init__(self, in_place: bool):
        self.cache, self.in_place = np.zeros((2, 3)), in_place

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        cache = self.cache if self.in_place else self.cache.copy()
        cache[:] = keys
        return cache[:1]


def test_a_cache_that_is_written_in_place_is_found():
    purity(Decoder(in_place=False), np.ones((2, 3)))
    with pytest.raises(CheckError, match="two calls return the result in the same memory"):
        purity(Decoder(in_place=True), np.ones((2, 3)))


def test_an_argument_that_is_changed_is_named():
    def normalise(batch):
        batch["x"] -= batch["x"].mean()
        return batch["x"].sum()

    with pytest.raises(
        CheckError, match=r"the call changes its argument args\[0\]\['x'\] in place, first at \[0\]"
    ):
        purity(normalise, {"x": np.arange(3.0), "y": np.ones(2)})


def test_hidden_state_is_found():
    seen = []

    def loss(x):
        seen.append(1)
        return jnp.sum(x) * len(seen)

    with pytest.raises(
        CheckError, match=r"give a different result the second time: the result was 3.0 and is 6.0"
    ):
        purity(loss, jnp.ones(3))


def test_hidden_state_that_jit_froze_is_found_in_the_trace():
    random = np.random.default_rng(0)
    noisy = jax.jit(lambda x: x + random.normal(size=3).astype(np.float32))
    with pytest.raises(
        CheckError, match=r"traced twice .* not the same program. Look at numbers drawn by numpy"
    ):
        purity(noisy, jnp.ones(3))
    purity(jax.jit(lambda x, key: x + jax.random.normal(key, (3,))), jnp.ones(3), jax.random.key(0))


def test_donated_buffers_are_listed_and_their_use_is_found():
    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, x):
        return state + x

    report = purity(step, jnp.ones(3), jnp.ones(3))
    assert report.facts["donated"] == ["args[0]"]
    assert "it donates args[0], which must not be used again" in report.message

    def loop(state, x):
        step(state, x)
        return step(state, x)

    with pytest.raises(CheckError, match=r"a buffer is used after it was donated: .*deleted"):
        purity(loop, jnp.ones(3), jnp.ones(3))


def test_the_arguments_of_the_caller_are_not_donated():
    x = jnp.ones(3)
    purity(jax.jit(lambda x: x * 2, donate_argnums=0), x)
    assert float(x.sum()) == 3.0


def test_a_module_that_updates_itself_is_named_and_left_alone():
    model = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    with pytest.raises(CheckError, match=r"the call changes the module itself: .*mean.*running statistics"):
        purity(model, x)
    with pytest.raises(CheckError, match="the call changes the module itself"):
        purity(lambda model, x: model(x), model, x)
    assert np.array_equal(model.mean[...], np.zeros(3))
    model.eval()
    purity(model, x)


def test_what_cannot_be_traced_is_called_twice():
    purity(lambda x: float(x.sum()) if x[0] > 0 else 0.0, np.ones(3))
