"""`explain` counts what is really in the program."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lapwing as lw
from tests.loops.bodies import normal

B, T, N = 3, 8, 16


def gru(params, xs, rewrite="auto"):
    def step(h, x):
        xr, xz, xn = jnp.split(x @ params["in"], 3, -1)
        r, z = jax.nn.sigmoid(xr + h @ params["u"]), jax.nn.sigmoid(xz + h @ params["v"])
        h = (1 - z) * h + z * jnp.tanh(xn + (r * h) @ params["w"])
        return h, h

    return jnp.sum(lw.scan(step, jnp.zeros((B, N)), xs, rewrite=rewrite)[1] ** 2)


def with_always(params, xs):
    return gru(params, xs, "always")


PARAMS = {k: np.full((N, N), 0.1, np.float32) for k in "uvw"} | {"in": np.ones((5, 3 * N), np.float32)}
XS = np.ones((T, B, 5), np.float32)


@pytest.mark.optimized
def test_a_gru():
    story = lw.explain(with_always, PARAMS, XS)
    assert story.loop_products["before"] == {
        "in the forward loop": 4, "in the backward loop": 8, "outside": 0, "computed again": 0,
    }  # fmt: skip
    assert story.loop_products["after"] == {
        "in the forward loop": 2, "in the backward loop": 2, "outside": 5, "computed again": 0,
    }  # fmt: skip
    roles = [row.role for row in story.rows]
    assert roles.count("value") == roles.count("gradient of the weight") == 4
    assert all(row.after.startswith("once") for row in story.rows if row.role == "gradient of the weight")
    assert sum("merged with" in row.after for row in story.rows) == 6
    assert story.memory["before"] > 0
    assert story.memory["after"] > 0
    assert json.loads(json.dumps(story.to_json()))["rows"][0]["site"].endswith("test_explain.py:18:31")


def test_the_table_shows_lines_places_and_reasons():
    text = str(lw.explain(with_always, PARAMS, XS, compiled=False))
    assert "test_explain.py:18:31" in text
    assert "one product over all steps" in text
    assert "stays: the carried gradient depends on it" in text
    assert "after: 2 in the forward loop, 2 in the backward loop" in text


def test_recomputation_is_shown():
    """Products of the forward loop that the backward loop does once more."""

    def loss(w, xs):
        layer = jax.checkpoint(lambda h, x: jnp.tanh(jnp.tanh(h @ w) @ w + x))
        return jnp.sum(jax.lax.scan(lambda h, x: (layer(h, x), None), jnp.ones(N), xs)[0])

    story = lw.explain(loss, PARAMS["u"], normal(T, N), rewrite="never", compiled=False)
    assert story.loop_products["before"]["computed again"] == 2
    assert any(row.role == "computed again" for row in story.rows)


def test_what_is_left_says_why():
    def loss(w, xs):
        def step(h, x):
            return jax.lax.cond(x[0] > 0, lambda h: jnp.tanh(h @ w), lambda h: h, h), None

        return jnp.sum(lw.scan(step, jnp.ones(N), xs)[0])

    story = lw.explain(loss, PARAMS["u"], normal(T, N), compiled=False)
    assert any("inside cond, which is not opened" in row.why for row in story.rows)

    def few_numbers(w, xs):
        return jnp.sum(lw.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((4096, 2)), xs)[0])

    story = lw.explain(few_numbers, jnp.eye(2), jnp.ones((3, 4096, 2)), compiled=False)
    assert any("left: it has only 4 numbers" in row.why for row in story.rows)

    def many_rows(w, xs):
        return jnp.sum(lw.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((4096, 16)), xs)[0])

    story = lw.explain(many_rows, jnp.eye(16), jnp.ones((3, 4096, 16)), compiled=False)
    assert any("it would not pay (saves" in row.why for row in story.rows)


def test_nothing_to_differentiate_is_said():
    with pytest.raises(ValueError, match="explain needs a floating-point array"):
        lw.explain(lambda n: n, 3)


def test_a_jitted_function_is_not_left_as_it_was_written():
    @jax.jit
    def loss(w, xs):
        return jnp.sum(lw.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((B, N)), xs)[0])

    story = lw.explain(loss, PARAMS["u"], normal(T, B, N), compiled=False)
    assert story.loop_products["after"]["in the backward loop"] == 1
    assert "custom_jvp_call" in str(jax.make_jaxpr(loss)(PARAMS["u"], normal(T, B, N)))


def test_merging_is_left_out_on_a_cpu_and_says_so():
    story = lw.explain(gru, PARAMS, XS, compiled=False)
    assert story.loop_products["after"]["in the forward loop"] == 3
    assert any("not merged: on a CPU" in row.why for row in story.rows)


def test_segments_are_shown():
    """What runs again inside the backward loop is in the backward loop, and weights get one product per segment."""

    def loss(w, xs):
        return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros((B, N)), xs)[0])

    story = lw.explain(loss, PARAMS["u"], normal(T, B, N), memory=4, compiled=False)
    assert story.loop_products["after"] == {
        "in the forward loop": 1, "in the backward loop": 3, "outside": 0, "computed again": 1,
    }  # fmt: skip
    (weight,) = (row for row in story.rows if row.role == "gradient of the weight")
    assert weight.why == "one product per segment"
    assert (weight.times_before, weight.times_after) == (T, T // 4)
