"""False alarms count as failures: usual layers of Equinox and Flax pass every check that applies to them."""

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import nnx

from lapwing.check import (
    CheckError,
    batch_independence,
    can_learn,
    causality,
    dead_parameters,
    gradients,
    purity,
    retrace,
    same_numbers,
    scale,
)

from .zoo import ZOO, Animal, FlaxPerceptron, FlaxSeeing, loss

# The others take a minute.
QUICK = ("equinox MLP", "flax convolution")


@pytest.fixture(
    params=[
        pytest.param(each, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, each in ZOO.items()
    ]
)
def animal(request: pytest.FixtureRequest) -> Animal:
    return request.param


def test_outputs(animal: Animal):
    model, x = animal.make(), animal.inputs
    batch_independence(model, x, examples=2)
    if animal.causal:
        causality(model, x, cuts=2)
    purity(model, x)


def test_losses(animal: Animal):
    model, batches = animal.make(), animal.batches
    dead_parameters(loss, model, batches)
    gradients(loss, model, batches[0], directions=1)


@pytest.mark.slow
def test_learning_loops_and_compilations(animal: Animal):
    model, batches = animal.make(), animal.batches
    same_numbers(model, as_compiled(model), batches[0]["x"])
    can_learn(loss, model, batches[0], fall=0.2)
    retrace(as_compiled(model), [(batch["x"],) for batch in batches])
    if "GRU" in str(model) or "LSTM" in str(model):
        scale(loss, model, batches[0])


def as_compiled(model):
    if not isinstance(model, nnx.Module):
        return eqx.filter_jit(model)
    graph, state = nnx.split(model)
    return jax.jit(lambda x: nnx.merge(graph, state, copy=True)(x))


def test_a_compiled_model_gives_the_same_numbers():
    model = ZOO["equinox MLP"].make()
    same_numbers(model, as_compiled(model), ZOO["equinox MLP"].inputs)


def test_statistics_and_dropout_in_training_are_what_they_are():
    seeing, perceptron = FlaxSeeing(nnx.Rngs(0)), FlaxPerceptron(nnx.Rngs(0))
    x = ZOO["flax convolution"].inputs
    with pytest.raises(CheckError, match="batch statistics"):
        batch_independence(seeing, x)
    with pytest.raises(CheckError, match=r"the call changes the module itself: .*mean"):
        purity(seeing, x)
    with pytest.raises(CheckError, match="the same arguments give a different result the second time"):
        purity(perceptron, ZOO["flax perceptron"].inputs)


@pytest.mark.slow
def test_gradients_of_a_model_in_training_are_checked_with_the_same_dropout_at_each_call():
    batches = ZOO["flax perceptron"].batches
    gradients(loss, FlaxPerceptron(nnx.Rngs(0)), batches[0], directions=1)
    batch_independence(FlaxPerceptron(nnx.Rngs(0)), batches[0]["x"])


def test_a_leaf_of_a_model_that_does_nothing_is_named_as_flax_and_equinox_name_it():
    class Spare(nnx.Module):
        def __init__(self):
            self.used = nnx.Linear(6, 3, rngs=nnx.Rngs(0))
            self.spare = nnx.Linear(6, 3, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.used(x)

    class EquinoxSpare(eqx.Module):
        used: eqx.nn.Linear
        spare: eqx.nn.Linear

        def __call__(self, x):
            return jax.vmap(self.used)(x)

    linear = eqx.nn.Linear(6, 3, key=jax.random.key(0))
    batches = ZOO["flax perceptron"].batches
    for model, name in (
        (Spare(), r"spare.*kernel"),
        (EquinoxSpare(linear, linear), r"params\.spare\.weight"),
    ):
        with pytest.raises(CheckError, match=rf"{name}.* has no effect on the loss"):
            dead_parameters(loss, model, batches)


@pytest.mark.slow
def test_the_checks_leave_a_model_as_it_was():
    model = FlaxPerceptron(nnx.Rngs(0))
    before = jax.tree.map(np.array, nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.RngState))))
    batches = ZOO["flax perceptron"].batches
    gradients(loss, model, batches[0], directions=1)
    can_learn(loss, model, batches[0], fall=0.1)
    after = nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.RngState)))
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))
