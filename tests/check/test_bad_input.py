"""What a check is given by mistake gets one sentence: what was expected, and what was found."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing import check
from lapwing.check import CheckInputError

X = jnp.ones(2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: check.keys(5), "expected a function, found '5' of type int"),  # pyright: ignore
        (lambda: check.numbers("loss", X, X), "expected a function, found 'loss' of type str"),  # pyright: ignore
        (
            lambda: check.gradients(lambda p: "no", X),
            "expected a loss that returns a scalar or (scalar, more), found a str",
        ),
        (
            lambda: check.dead_parameters(lambda p: [p.sum()], X),
            "expected a loss that returns a scalar or (scalar, more), found a list",
        ),
        (
            lambda: check.can_learn(lambda p: p, X),
            "expected a loss that returns a scalar or (scalar, more), found shape (2,); take its mean",
        ),
        (
            lambda: check.optimizer(optax.adam, {"w": X}),
            "expected an optimizer of optax, such as optax.adam(1e-3), which has init and update; found a function "
            "that makes one of a learning rate",
        ),
        (
            lambda: check.optimizer(3, {"w": X}),
            "expected an optimizer of optax, such as optax.adam(1e-3), which has init and update; found type int",
        ),
        (
            lambda: check.workers(lambda worker: []),
            "expected batches of each worker, found none of worker 0",
        ),
        (
            lambda: check.workers(lambda worker: [X], batches=0),
            "expected one batch or more of each worker, found batches=0",
        ),
        (
            lambda: check.shared_examples([np.ones((3, 2))], []),
            "expected batches in training and in held_out, found none in held_out",
        ),
    ],
)
def test_a_wrong_argument_gets_one_sentence(call: Any, sentence: str):
    with pytest.raises(CheckInputError) as raised:
        call()
    assert str(raised.value) == sentence


def test_run_all_raises_nothing_for_what_is_no_task():
    (outcome,) = check.run_all(5)  # pyright: ignore
    assert (outcome.check, outcome.result) == ("task", "failed")
    assert outcome.detail == "expected a task (lapwing.task.Task), found type int"
