"""What changes during a run is an array in the state: changing it compiles nothing."""

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.train import FitConfig
from lapwing.train._state import copy_of, initial_state
from lapwing.train._step import make_phases, take_step

from .tasks import line


def test_rate_and_clip_change_without_compiling_again():
    task = line()
    state, mask = initial_state(task, FitConfig(learning_rate=0.1))
    traced = []

    @jax.jit
    def step(state):
        traced.append(1)
        return take_step(make_phases(task, mask, FitConfig()), state)

    _, at_first = step(state)
    _, later = step(state.with_controls({"learning_rate": jnp.float32(0.5)}))
    _, clipped = step(state.with_controls({"clip": jnp.float32(0.25)}))
    assert [float(metrics["effective_learning_rate"]) for metrics in (at_first, later)] == [
        np.float32(0.1),
        0.5,
    ]
    np.testing.assert_allclose(clipped["clipped_norm"], 0.25, rtol=1e-6)
    assert len(traced) == 1


def test_a_copy_lives_on_when_the_state_is_used_up():
    state, _ = initial_state(line(), FitConfig())
    copy = copy_of(state)
    jax.jit(lambda state: jax.tree.map(lambda leaf: leaf, state), donate_argnums=0)(state)
    assert copy.params["w"].tolist() == [0, 0, 0]
    assert copy.keys.batch.shape == (2,)
