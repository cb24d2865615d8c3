"""Adam with the roundings of single precision, as the published runs of 2022 have it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.task import Task, adam_as_published
from lapwing.train import FitConfig, fit
from tests.slow import some


def steps(optimizer: optax.GradientTransformation, gradients: list) -> list:
    state, found = optimizer.init(gradients[0]), []
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state)
        found.append(updates)
    return found


def by_hand(gradients: list[np.ndarray], rate: float) -> list[np.ndarray]:
    """The published update, operation by operation in numpy's float32."""
    one, rate, b1, b2 = (np.float32(x) for x in (1, rate, 0.9, 0.999))
    mean = square = np.zeros_like(gradients[0])
    power_1, power_2, found = b1, b2, []
    for gradient in gradients:
        mean = b1 * mean + (one - b1) * gradient
        square = b2 * square + (one - b2) * (gradient * gradient)
        corrected = mean / (one - power_1) / (np.sqrt(square / (one - power_2)) + np.float32(1e-8))
        power_1, power_2 = power_1 * b1, power_2 * b2
        found.append(-rate * corrected)
    return found


GRADIENTS = [np.random.default_rng(k).normal(size=50).astype(np.float32) for k in range(60)]


def test_it_has_the_roundings_of_single_precision():
    ours = steps(adam_as_published(np.float32(1e-3)), [jnp.asarray(g) for g in GRADIENTS])
    np.testing.assert_allclose(ours, by_hand(GRADIENTS, 1e-3), rtol=1e-6, atol=1e-12)


def test_it_is_adam_but_for_roundings():
    """That the two differ by more than a rounding is what it is for."""
    ours, theirs = (
        np.array(steps(adam(1e-3), [jnp.asarray(g) for g in GRADIENTS]))
        for adam in (adam_as_published, optax.adam)
    )
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-9)
    assert np.max(np.abs(ours - theirs)) > 1e-9


def test_gradients_are_a_tree():
    trees = [{"a": jnp.asarray(g[:20]), "b": [jnp.asarray(g[20:])]} for g in GRADIENTS[:3]]
    expected = by_hand(GRADIENTS[:3], 0.1)[-1]
    found = steps(adam_as_published(0.1), trees)[-1]
    np.testing.assert_allclose(jnp.concatenate([found["a"], found["b"][0]]), expected, rtol=1e-6)


@pytest.mark.parametrize("steps_per_call", some([1, 5], 0))
def test_a_task_trains_with_it_and_its_learning_rate_is_a_control(steps_per_call):
    task = Task(
        init=lambda key: jnp.zeros(3),
        data=lambda key, step: {},
        loss=lambda params, batch: (jnp.sum((params - 1) ** 2), {}),
        optimizer=adam_as_published,
    )
    result = fit(task, FitConfig(steps=100, learning_rate=0.1, steps_per_call=steps_per_call), quiet=True)
    assert result.metrics["loss"][-1] < 0.01
    assert "learning_rate" in result.state.controls
    assert jax.tree.leaves(result.state.optimizer)
