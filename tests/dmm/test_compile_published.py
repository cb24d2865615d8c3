"""The published numbers, by the compiled machines."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import dmm
from lapwing.task import adam_as_published
from tests.slow import some

TEXT = "test string."
LITE_DATA_LOSS = """410.80295 400.06247 389.3122 378.1521 368.61615 358.08432 347.94073 338.7498
327.65314 318.64127 309.36426 300.43744 292.13742 285.15756 278.7816 277.9474"""
LITE_REGULARISATION = """335.15085 334.5425 334.02466 333.55975 333.0826 332.68765 332.35764 332.0483
331.79083 331.48163 331.1553 330.81122 330.4651 330.08612 329.70935 329.3111"""


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def teacher(cycles: int, text: str = TEXT) -> jax.Array:
    program = dmm.compile(dmm.duplicate_detector(), cycles, text=text)
    return jax.jit(program.answers)(program.start)


def train(program: dmm.Program, loss, optimizer: optax.GradientTransformation, steps: int) -> list:
    """What `loss(params) -> (total, shown)` shows before each step on the soft parameters."""

    @jax.jit
    def step(params, state):
        (_, shown), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        update, state = optimizer.update(jnp.where(program.soft, gradient, 0.0), state)
        return params + update, state, shown

    params, state = program.start, optimizer.init(program.start)
    found = []
    for _ in range(steps):
        params, state, shown = step(params, state)
        found.append(shown)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cycles", "published"),
    [
        pytest.param(2, "0.0354757 0.0542845 0.00072925", marks=pytest.mark.slow),
        pytest.param(11, "0.354855 0.687871 0.0135954", marks=pytest.mark.slow),
        (101, "169.5692 119.4735 79.2106 124.4592 76.6079"),
    ],
)
def test_superfluid_losses(cycles, published):
    program = dmm.compile(dmm.superfluid_start(), cycles, text=TEXT)
    targets = teacher(cycles)

    def loss(params):
        total = program.loss(params, targets, skip=1)
        return total, total

    losses = train(program, loss, optax.adam(0.1), len(published.split()))
    np.testing.assert_allclose(losses, numbers(published), rtol=2e-5)


def lite(accumulator_gradient: str, steps: int) -> np.ndarray:
    program = dmm.compile(
        dmm.lite_start(), 140, text=TEXT, governor=100.0, accumulator_gradient=accumulator_gradient
    )
    assert (len(program.paths), program.soft.sum()) == (851, 849)
    targets = teacher(140)

    def loss(params):
        data_loss = program.loss(params, targets)
        soft = jnp.where(program.soft, params, 0.0)
        regularisation = jnp.sum(jnp.abs(soft) + 10 * soft**2)
        return data_loss + regularisation, (data_loss, regularisation)

    return np.array(train(program, loss, adam_as_published(np.float32(0.001)), steps)).T


@pytest.mark.slow
def test_lite_losses():
    data_loss, regularisation = lite("truncated", 16)
    np.testing.assert_allclose(data_loss, numbers(LITE_DATA_LOSS), rtol=1e-6)
    np.testing.assert_allclose(regularisation, numbers(LITE_REGULARISATION), rtol=1e-6)


@pytest.mark.slow
def test_lite_drifts_with_the_full_gradient():
    data_loss, _ = lite("full", 16)
    np.testing.assert_allclose(data_loss[0], 410.80295, rtol=1e-6)
    np.testing.assert_allclose(data_loss[-1], 277.673, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "published"),
    some([(TEXT, 0.0016101), ("teest string.", 0.0013413), ("tets string.", 0.0014383)], 0),
)
def test_the_readable_machine_generalises(text, published):
    program = dmm.compile(dmm.readable_detector(), 140, text=text, governor=4.0)
    loss = jax.jit(program.loss)(program.start, teacher(140, text))
    assert abs(loss - published) < 0.5e-7  # all digits that were published
