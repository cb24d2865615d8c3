"""Each gradient took as long as the first (docs/story.md): was it traced again every time?"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, retrace, run_all
from lapwing.task import Task
from lapwing.train import FitConfig, fit


class State(NamedTuple):
    step: jax.Array
    w: jax.Array


def train_step(state: State, x: jax.Array, learning_rate: float = 0.1) -> State:
    slope = jax.grad(lambda w: jnp.sum((w * x - 1) ** 2))(state.w)
    return State(state.step + 1, state.w - learning_rate * slope)


X = jnp.ones(3)


def test_a_step_that_compiles_once_passes():
    start = State(jnp.zeros((), jnp.int32), jnp.ones(3))
    assert retrace(jax.jit(train_step), [(start, X)] * 4, carry=True).facts == {"calls": 4}
    assert retrace(train_step, [(start, X)] * 3, carry=True).facts == {"calls": 3}


def test_a_state_that_comes_back_as_something_else_is_named():
    start = State(jnp.zeros((), jnp.int32), jnp.ones(3, jnp.bfloat16))
    with pytest.raises(
        CheckError, match=r"call 1 compiles again, since args\[0\]\.w is float32\[3\] and was bfloat16\[3\]"
    ):
        retrace(jax.jit(train_step), [(start, X, jnp.float32(0.1))] * 3, carry=True)


def test_a_sum_that_begins_as_a_weakly_typed_zero_is_named():
    step = jax.jit(lambda total, x: total + jnp.sum(x))
    with pytest.raises(CheckError, match=r"args\[0\] is float32\[\] and was float32\[\] \(weakly typed\)"):
        retrace(step, [(jnp.asarray(0.0), X)] * 3, carry=True)


def test_a_weakly_typed_start_is_reported_where_the_loop_compiles_for_dtypes():
    step = jax.jit(lambda total, x: total + jnp.sum(x))
    report = retrace(step, [(jnp.asarray(0.0), X)] * 4, carry=True, weak_start=True)
    assert "after the first but once, since the first call is given numbers that are weakly" in report.message
    assert "args[0]; jit compiles twice" in report.message
    both = [(jnp.asarray(0.0), X), (jnp.zeros(()), X[:2])]
    with pytest.raises(CheckError, match=r"args\[1\] is float32\[2\] and was float32\[3\]"):
        retrace(step, both, weak_start=True)
    again = [(jnp.asarray(0.0), X), (jnp.zeros(()), X), (jnp.zeros(()), jnp.full(3, 1.0))]
    with pytest.raises(CheckError, match=r"call 2 compiles again, since args\[1\] is float32\[3\] \(weakly"):
        retrace(jax.jit(lambda total, x: total + x), again, weak_start=True)


def test_a_parameter_that_starts_weakly_typed_is_compiled_for_once_by_fit():
    """`jnp.log(10.0)` is weakly typed, and its update is not."""
    traced = []

    def loss(params, x):
        traced.append(x)
        return jnp.mean((x @ params["w"] * jnp.exp(params["log_scale"]) - 1) ** 2), {}

    task = Task(
        init=lambda key: {"w": jnp.zeros(3), "log_scale": jnp.log(10.0)},
        data=lambda key, step: jax.random.normal(key, (8, 3)),
        loss=loss,
    )
    (outcome,) = run_all(task, only=["retrace"])
    assert outcome.result == "passed"
    assert "args[0].params['log_scale']" in outcome.detail

    def traces(steps: int) -> int:
        traced.clear()
        fit(task, FitConfig(steps=steps, laps_every=0))
        return len(traced)

    assert traces(5) == traces(1)


def test_a_last_batch_of_another_size_is_named():
    start = State(jnp.zeros((), jnp.int32), jnp.ones(()))
    with pytest.raises(
        CheckError, match=r"call 2 compiles again, since args\[1\] is float32\[2\] and was float32\[3\]"
    ):
        retrace(jax.jit(train_step), [(start, X), (start, X), (start, X[:2])])


def test_a_step_that_makes_its_own_jit_at_every_call_is_found():
    def step(x):
        return jax.jit(lambda x: x * 2 + 1)(x)

    step.lower = None  # pyright: ignore[reportFunctionMemberAccess]  # as if it were compiled
    with pytest.raises(
        CheckError,
        match=r"call 1 compiles again, though no argument changed its type\. .*each call of the step creates",
    ):
        retrace(step, [(X,)] * 3)


def test_a_static_argument_that_changes_is_named():
    step = functools.partial(jax.jit, static_argnames="name")(lambda x, name: x + len(name))
    with pytest.raises(CheckError, match=r"call 1 compiles again, since args\[1\] is 'bcd' and was 'a'"):
        retrace(step, [(X, "a"), (X, "bcd")])
    with pytest.raises(CheckError, match=r"since args\[1\] is 'bcd' and was 'a'"):
        retrace(lambda x, name: x + len(name), [(X, "a"), (X, "bcd")])


def test_a_learning_rate_that_is_static_is_named():
    step = functools.partial(jax.jit, static_argnums=1)(lambda x, rate: x * rate)
    with pytest.raises(
        CheckError, match=r"since args\[1\] is 0.09 and was 0.1: a Python number that is static"
    ):
        retrace(step, [(X, 0.1), (X, 0.09)])


def test_numbers_that_change_do_not_compile_again():
    retrace(lambda x, rate: x * rate, [(X, 0.1), (X, 0.2), (np.ones(3, np.float32), 0.3)])


def test_a_key_that_vanishes_is_named():
    with pytest.raises(CheckError, match=r"args\[0\]\['b'\] is missing and was float32\[3\]"):
        retrace(lambda tree: tree["a"] + 1, [({"a": X, "b": X},), ({"a": X},)])


def test_one_call_is_refused():
    with pytest.raises(CheckInputError, match="expected two calls or more, found 1"):
        retrace(train_step, [(State(jnp.zeros(()), X), X)])
