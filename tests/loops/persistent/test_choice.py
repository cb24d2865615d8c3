"""What fits in a kernel, what pays, and what `explain` says of it."""

import json

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing import jaxprs
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._choice import choose
from lapwing.loops.persistent._plan import Gpu
from lapwing.loops.persistent._prepare import prepare
from tests.loops.persistent.gpu import SHAPES, array, lstm
from tests.loops.persistent.test_tune import loop_of, rnn


def test_a_recurrent_loop_of_many_steps_is_a_kernel():
    choice = choose(loop_of(rnn, array(256, 256), array(100, 16, 256)), Gpu())
    assert choice.why == ""
    assert choice.plan == choice.plans[0]


def test_few_steps_do_not_pay():
    choice = choose(loop_of(rnn, array(256, 256), array(2, 16, 256)), Gpu())
    assert choice.plan is None
    assert choice.why.startswith("it would not pay: 2")
    assert choice.plans


def test_weights_that_do_not_fit():
    choice = choose(loop_of(rnn, array(8192, 8192), array(100, 16, 8192)), Gpu())
    assert choice.why == "no plan fits for 16 rows, 8192 units and 134 MB of weights"
    assert choice.prepared is not None


PRECISIONS = {
    "by default": (jnp.float32, None, None),
    "default": (jnp.float32, "default", None),
    "high": (jnp.float32, "high", "a product of float32 with precision HIGH"),
    "highest": (jnp.float32, "highest", "a product of float32 with precision HIGHEST"),
    "TF32": (jnp.float32, "TF32_TF32_F32", None),
    "three products": (
        jnp.float32,
        "BF16_BF16_F32_X3",
        "a product of float32 with precision BF16_BF16_F32_X3",
    ),
    "exact halves": (jnp.bfloat16, "highest", None),
    "float16": (jnp.float16, "highest", None),
}


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_product_that_asks_for_more_than_tf32_does_not_fit(name):
    dtype, precision, expected = PRECISIONS[name]
    with jax.default_matmul_precision(precision):
        loop = loop_of(rnn, array(32, 32, dtype=dtype), array(9, 4, 32, dtype=dtype))
    if expected is None:
        prepare(loop)
    else:
        with pytest.raises(DoesNotFitError) as caught:
            prepare(loop)
        assert str(caught.value).startswith(f"{expected} (test_tune.py:")


def test_float64_does_not_fit():
    with jax.enable_x64(True):
        loop = loop_of(rnn, array(32, 32, dtype=jnp.float64), array(9, 4, 32, dtype=jnp.float64))
    with pytest.raises(DoesNotFitError, match=r"^a step holds float64$"):
        prepare(loop)


def test_one_number_for_all_blocks_is_no_sum_over_units():
    """Without rows, a norm is one number, and each block has its own tile of it."""

    def power_iteration(w, h, returns=True):
        def step(h, _):
            h = w @ h
            norm = jnp.sqrt(jnp.sum(h**2))
            return h / norm, norm if returns else None

        return jax.lax.scan(step, h, None, length=9)

    shapes = array(32, 32), array(32)
    with pytest.raises(
        DoesNotFitError, match=r"^it carries or returns one number that is a sum over units \(test_ch"
    ):
        prepare(loop_of(power_iteration, *shapes))
    prepare(loop_of(lambda *args: power_iteration(*args, returns=False), *shapes))


def zeros(*shapes):
    return [jnp.zeros(each.shape, each.dtype) for each in shapes]


def on_gpu(story):
    return [row for row in story.loops if row.processor == "Hopper GPU"]


def test_explain_shows_the_plan_of_each_kernel():
    story = lw.explain(lstm, *zeros(*SHAPES), compiled=False)
    forward, backward = on_gpu(story)
    assert (forward.place, backward.place) == ("forward loop", "backward loop")
    assert forward.one_kernel
    assert backward.one_kernel
    assert set(forward.plan) >= {"blocks", "units", "rows", "groups", "split"}
    sentence = (
        f"the forward loop, 100 steps, on a Hopper GPU: one kernel: {forward.plan['blocks']} blocks, "
        f"each of {forward.plan['units']} units and {forward.plan['rows']} rows"
    )
    assert sentence in str(story)
    assert json.loads(json.dumps(story.to_json()))["loops"][-1]["plan"] == backward.plan
    assert story.to_json()["loops"][-1]["one_kernel"]


def test_explain_says_by_line_why_a_loop_is_no_kernel():
    def loss(w, xs):
        def step(h, x):
            h = jnp.sort(h)  # this line
            return jnp.tanh(h @ w + x), h

        return jnp.sum(lw.scan(step, jnp.zeros(xs.shape[1:]), xs)[1])

    line = loss.__code__.co_firstlineno + 2
    story = lw.explain(loss, jnp.eye(32), jnp.ones((50, 4, 32)), compiled=False)
    assert on_gpu(story)[0].why == (
        f"sort is not elementwise, nor a product with a weight (test_choice.py:{line})"
    )
    assert not on_gpu(story)[0].one_kernel
    assert f"50 steps, on a Hopper GPU: not one kernel: {on_gpu(story)[0].why}" in str(story)


def test_explain_knows_what_was_asked():
    with lw.loops.use_persistent("off"):
        story = lw.explain(lstm, *zeros(*SHAPES), compiled=False)
    assert {row.why for row in on_gpu(story)} == {"persistent kernels are off"}
    never = lw.explain(
        lambda *args: lstm(*args, jax.lax.scan), *zeros(*SHAPES), rewrite="never", compiled=False
    )
    assert {row.why for row in on_gpu(never)} == {"it runs exactly as it was written"}


def test_explain_is_silent_about_gpus_where_a_loop_has_no_products():
    story = lw.explain(
        lambda w: jnp.sum(lw.scan(lambda h, _: (h * w, h), w, None, length=20)[1]),
        jnp.ones(4),
        compiled=False,
    )
    assert story.loops
    assert not on_gpu(story)


def test_an_equation_inside_a_function_of_jax_has_the_line_of_the_call():
    closed = jax.make_jaxpr(lambda x: jnp.sort(x))(jnp.ones(3))
    inner = closed.jaxpr.eqns[0].params["jaxpr"].jaxpr.eqns[0]
    assert jaxprs.site(inner) == ""
    opened = jax.make_jaxpr(lambda x: jaxprs.interpret(closed.jaxpr, [x], jaxprs.open_calls()))(jnp.ones(3))
    assert jaxprs.file_and_line(opened.jaxpr.eqns[0]) == jaxprs.file_and_line(closed.jaxpr.eqns[0])
