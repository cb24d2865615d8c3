import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.task import Task, TaskError
from lapwing.train import FitConfig, fit

from .tasks import line


def train(task: Task, **options):
    return fit(task, FitConfig(**{"steps": 20, "learning_rate": 0.1, "laps_every": 0, **options}), quiet=True)


def bits(array) -> bytes:
    return np.asarray(array).tobytes()


def test_fixed_leaves_stay_bit_by_bit():
    result = train(line(trainable=lambda params: {"w": True, "b": False}))
    assert bits(result.params["b"]) == bits(jnp.float32(0.5))
    assert not np.allclose(result.params["w"], 0)


def test_fixed_leaves_have_no_gradient_and_no_optimizer_state():
    free = train(line())
    held = train(line(trainable=lambda params: {"w": True, "b": False}))
    count = len(jax.tree.leaves(free.state.optimizer)) - len(jax.tree.leaves(held.state.optimizer))
    assert count == 2  # Two moments of `b`.
    # The gradient of b is 2 * 0.5 in the first step; the norm without it is smaller by just that.
    difference = free.metrics["gradient_norm"][0] ** 2 - held.metrics["gradient_norm"][0] ** 2
    assert difference == pytest.approx(1.0, rel=1e-4)


def test_a_leaf_can_be_trained_in_part():
    start = jnp.array([-0.0, 0.3, 0.7])
    mask = {"w": np.array([False, True, False]), "b": False}
    # Weight decay moves also what has no gradient.
    optimizer = functools.partial(optax.adamw, weight_decay=0.1)
    task = line(
        init=lambda key: {"w": start, "b": jnp.float32(0)},
        trainable=lambda params: mask,
        optimizer=optimizer,
    )
    result = train(task)
    assert bits(result.params["w"][::2]) == bits(start[::2])
    assert result.params["w"][1] != 0.3
    moments = [leaf for leaf in jax.tree.leaves(result.state.optimizer) if leaf.shape == (3,)]
    assert len(moments) == 2
    assert all(leaf[0] == 0 and leaf[2] == 0 for leaf in moments)


def test_integers_may_stand_among_fixed_leaves():
    task = line(
        init=lambda key: {"w": jnp.zeros(3), "b": jnp.float32(0), "n": jnp.int32(7)},
        trainable=lambda params: {"w": True, "b": True, "n": False},
    )
    assert int(train(task).params["n"]) == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"trainable": lambda p: {"w": True}},
            r"trainable\(params\) should be a tree like the parameters, PyTreeDef\(\{'b': \*, 'w': \*\}\), but",
        ),
        (
            {"trainable": lambda p: {"w": np.array([True]), "b": True}},
            r"the mask of params\['w'\] should be a bool or a boolean array of shape \(3,\), but is an array of "
            r"bool of shape \(1,\)",
        ),
        (
            {"trainable": lambda p: {"w": np.ones(3), "b": True}},
            r"the mask of params\['w'\] should be .* but is an array of float64 of shape \(3,\)",
        ),
        (
            {"trainable": lambda p: {"w": False, "b": False}},
            r"no parameter is trained; trainable\(params\) should be True somewhere",
        ),
        (
            {"init": lambda key: {"w": jnp.arange(3), "b": jnp.float32(0)}},
            r"params\['w'\] is an array of int32, which has no gradient; make it floating, or let",
        ),
        (
            {"init": lambda key: {"w": jnp.zeros(3), "f": jnp.tanh, "b": jnp.float32(0)}},
            r"params\['f'\] is a .*, but parameters are arrays; init should return arrays only",
        ),
        (
            {"loss": lambda p, x: p["w"][0]},
            r"loss should return \(scalar, dict of metrics\), but returned",
        ),
        (
            {"loss": lambda p, x: (p["w"], {})},
            r"the loss should be a scalar, but has shape \(3,\); take its mean",
        ),
        (
            {"loss": lambda p, x: (p["w"][0], {"size": p["w"]})},
            r"size should be a scalar, but has shape \(3,\)",
        ),
    ],
)
def test_a_wrong_task_is_named_by_its_place(changes, message: str):
    with pytest.raises(TaskError, match=message):
        train(line(**changes))
