"""A mask off by one, a mask that is not used, a target that leaks into its own prediction."""

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, causality

from .models import tokens, transformer, transformer_params


@pytest.fixture(scope="module")
def params():
    return transformer_params()


def test_a_causal_transformer_passes(params):
    report = causality(lambda x: transformer(params, x), tokens(3, 6), cuts=5)
    assert report.facts == {"times": 6, "tried": 5}


@pytest.mark.parametrize("wrong", [{"causal": False}, {"mask_first": False}])
def test_a_mask_that_is_missing_or_off_by_one_is_found(params, wrong):
    with pytest.raises(
        CheckError, match=r"the output at time 0 changes with the inputs from time 1 on \(axis 1\)\. .*mask"
    ):
        causality(lambda x: transformer(params, x, **wrong), tokens(3, 6))


def test_a_prediction_of_the_next_input_may_not_depend_on_it():
    shifted = lambda x: jnp.pad(jnp.cumsum(x, axis=1), ((0, 0), (1, 0)))[:, :-1]  # noqa: E731
    x = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    causality(shifted, x, lag=1)
    with pytest.raises(
        CheckError,
        match=r"the output at time 1 changes .* though it may depend on inputs up to time t − 1 only",
    ):
        causality(lambda x: jnp.cumsum(x, axis=1), x, lag=1)


def test_a_target_that_leaks_into_its_prediction_is_found():
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    targets = np.arange(4)

    def model(x, targets, leak):
        features = jnp.cumsum(x, axis=1)
        return features + 0.01 * targets[:, None] if leak else features

    report = causality(lambda x, t: model(x, t, leak=False), x, targets=targets)
    assert report.message.endswith("swapped targets change nothing")
    with pytest.raises(
        CheckError, match=r"the outputs change when the targets of the examples are swapped, first at \[0"
    ):
        causality(lambda x, t: model(x, t, leak=True), x, targets=targets)


def test_time_may_be_another_axis():
    x = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    causality(lambda x: jnp.cumsum(x, axis=0), x, time_axis=0)
    with pytest.raises(CheckInputError, match="time_axis=2 needs an array of 3 axes or more"):
        causality(lambda x: x, x, time_axis=2)


def test_the_last_token_may_have_no_output(params):
    """As in `model(batch[:, :-1])`, whose labels are `batch[:, 1:]`."""
    report = causality(lambda x: transformer(params, x)[:, :-1], tokens(3, 6), cuts=5)
    assert report.facts == {"times": 5, "tried": 4}
    # The first may be the one that is left out.
    causality(lambda x: transformer(params, x)[:, 1:], tokens(3, 6))
    with pytest.raises(CheckError, match=r"at time 0 changes .* from time 2 on .* up to time t \+ 1 only"):
        causality(lambda x: transformer(params, x, causal=False)[:, :-1], tokens(3, 6))


def test_outputs_without_time_are_refused():
    with pytest.raises(
        CheckInputError, match="found 5 steps in the inputs and 3 in the outputs; name the axis"
    ):
        causality(lambda x: x[:, :3], np.random.default_rng(0).normal(size=(2, 5)))
