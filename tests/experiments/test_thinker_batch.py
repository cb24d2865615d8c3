"""Problems that stay from batch to batch, and are thought about further."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.experiments.thinker import Config, build
from lapwing.models import LoopedSize
from lapwing.train import fit

PLAIN = Config(
    base=2, size=3, far=0, model=LoopedSize(width=8), before=4, gradient_steps=4, batch_size=64, evaluated=8, steps=3,
    laps_every=0, random_starts=0.5,
)  # fmt: skip
KEEPING = dataclasses.replace(PLAIN, kept=0.75)


@pytest.mark.slow
def test_a_share_stays_and_is_thought_about_further():
    task = build(KEEPING)
    params, memory = task.init(jax.random.key(0)), task.memory(jax.random.key(1))
    for step in range(3):
        batch = jax.jit(task.data)(jax.random.key(step), step, memory)
        assert 0.5 < np.mean(batch.stays) < 0.95
        prepared = task.prepare(params, batch, jax.random.key(9))
        recalled = params.recall(batch.instances.inputs)
        fresh = params.start(batch.instances.inputs, batch.start)
        begin = jnp.where(batch.stays[:, None, None], memory.state, fresh)
        np.testing.assert_allclose(prepared.state, params.think(begin, recalled, batch.before), atol=1e-6)
        stays = np.asarray(batch.stays)
        for old, new in zip(memory.instances, prepared.instances, strict=True):
            np.testing.assert_array_equal(np.asarray(new)[stays], np.asarray(old)[stays])
        assert not np.array_equal(memory.instances.inputs, prepared.instances.inputs)
        memory = task.remember(memory, prepared, {})
        np.testing.assert_array_equal(memory.state, prepared.state)


def test_the_loss_is_that_of_a_batch_which_thinks_before():
    """The same problems from the same states: whether they were kept makes no difference to loss and gradient."""
    task, plain = build(KEEPING), build(PLAIN)
    params = task.init(jax.random.key(0))
    batch = plain.data(jax.random.key(3), 0)._replace(before=jnp.asarray(3))
    kept = task.memory(jax.random.key(1))
    nothing_stays = batch._replace(state=kept.state, stays=jnp.zeros(64, bool))
    prepared = task.prepare(params, nothing_stays, jax.random.key(0))
    found = [
        jax.value_and_grad(lambda p, task=t, batch=b: task.loss(p, batch)[0])(params)
        for t, b in ((task, prepared), (plain, batch))
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), *found)


@pytest.mark.slow
def test_states_are_kept_in_the_precision_of_the_training():
    config = dataclasses.replace(KEEPING, precision="bfloat16")
    result = fit(build(config), config, quiet=True)
    assert result.state.memory.state.dtype == jnp.bfloat16
    assert np.isfinite(result.metrics["loss"]).all()
