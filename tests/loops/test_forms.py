"""Forms in which people write loops: `[x, h] @ W`, checkpointed steps, loops inside other calls."""

import functools

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing.jaxprs import equations, scan_counts
from lapwing.loops._concatenated import split_concatenated
from lapwing.loops._costs import Costs
from tests.loops.bodies import normal
from tests.loops.bound import ALWAYS, AUTO, bound_loop, count
from tests.loops.reference import leaves_close
from tests.slow import some

T, B, N = 5, 3, 4


# [x, h] @ W


def concatenated(w, h, xs, order=("x", "h"), axis=-1):
    def step(h, x):
        parts = jnp.concatenate([{"x": x, "h": h}[name] for name in order], axis)
        return jnp.tanh(parts @ w if axis == -1 else (w.T @ parts)), None

    return jax.lax.scan(step, h, xs)[0]


@pytest.mark.parametrize(
    ("order", "axis", "terms"),
    some(
        [("xh", -1, 2), ("hx", -1, 2), ("xhx", -1, 3), ("xxh", -1, 2), ("hh", -1, 1), ("xh", 0, 2)], 0, 2, 5
    ),
)
def test_a_product_of_a_concatenation_is_split_by_what_is_known(order, axis, terms):
    shape = (B, N) if axis == -1 else (N, B)
    args = normal(len(order) * N, N), normal(*shape), normal(T, *shape)
    bound = bound_loop(functools.partial(concatenated, order=order, axis=axis), *args)
    split = split_concatenated(bound, AUTO)
    assert count(split.bound.loop, "dot_general") == terms
    leaves_close(bound.run(), split.undo(split.bound.run()), 1e-5)


def test_rows_that_were_put_together_are_not_split():
    """Here the product does not sum over the axis of the concatenation."""

    def rows(w, h, xs):
        def step(h, x):
            both = jnp.concatenate([x, h], 0) @ w
            return jnp.tanh(both[:B] + both[B:]), None

        return jax.lax.scan(step, h, xs)[0]

    bound = bound_loop(rows, normal(N, N), normal(B, N), normal(T, B, N))
    split = split_concatenated(bound, ALWAYS)
    assert count(split.bound.loop, "dot_general") == 1


def test_the_known_part_of_a_concatenation_leaves_the_loop_with_its_gradient():
    def loss(*args):
        return jnp.sum(concatenated(*args))

    args = normal(2 * N, N), normal(B, N), normal(T, B, N)
    counts = lw.explain(loss, *args, compiled=False, rewrite="always").loop_products
    assert counts["after"]["in the forward loop"] == counts["after"]["in the backward loop"] == 1
    assert counts["after"]["outside"] == 4


def test_a_product_is_not_split_where_its_part_would_not_be_hoisted():
    args = normal(2 * N, N), normal(B, N), normal(T, B, N)
    bound = bound_loop(concatenated, *args)
    value = split_concatenated(bound, Costs("auto", "cpu", differentiated=False))
    assert value.bound is bound
    assert [decision.taken for decision in value.decisions] == [False]


# What stays, with its reason


def test_random_numbers_are_drawn_in_each_step():
    def loss(w, key):
        def step(carry, _):
            h, key = carry
            key, sub = jax.random.split(key)
            return (jnp.tanh(h @ w) * jax.random.bernoulli(sub, 0.5, h.shape), key), None

        return jnp.sum(jax.lax.scan(step, (jnp.ones((B, N)), key), length=T)[0][0])

    text = str(lw.explain(loss, normal(N, N), jax.random.key(0), compiled=False))
    assert "left: drawn for all steps at once, random numbers take more memory, and mostly more time" in text


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_what_is_kept_of_a_checkpointed_step_is_what_jax_keeps(policy):
    def loss(scan, w, xs):
        step = jax.checkpoint(lambda h, x: (jnp.tanh(h @ w + x @ w), None), policy=policy)
        return jnp.sum(scan(step, jnp.zeros((B, N)), xs)[0])

    args = normal(N, N), normal(T, B, N)
    ours, theirs = (
        jax.make_jaxpr(jax.grad(functools.partial(loss, scan)))(*args)
        for scan in (functools.partial(lw.scan, rewrite="always"), jax.lax.scan)
    )
    assert _stacked_bytes(ours) == _stacked_bytes(theirs)
    text = str(lw.explain(functools.partial(loss, jax.lax.scan), *args, compiled=False))
    assert "left: jax.checkpoint says what is kept of a step" in text


def _stacked_bytes(closed) -> list[int]:
    """What each loop returns of all its steps."""
    scans = [eqn for eqn in equations(closed.jaxpr) if eqn.primitive.name == "scan"]
    return [sum(v.aval.size for v in eqn.outvars[scan_counts(eqn.params)[1] :]) for eqn in scans]


@pytest.mark.slow
def test_a_checkpointed_step_has_its_inner_loop_rewritten():
    """Chunks of a long loop, each computed again: the loop inside is rewritten, the one over the chunks is not."""

    def loss(w, xs):
        def chunk(h, xs):
            return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x @ w), None), h, xs)[0], None

        return jnp.sum(jax.lax.scan(jax.checkpoint(chunk), jnp.zeros((B, N)), xs)[0])

    args = normal(N, N), normal(2, T, B, N)
    rows = lw.explain(loss, *args, rewrite="always", compiled=False).rows
    weights = [row for row in rows if row.role == "gradient of the weight"]
    assert {(row.times_before, row.times_after) for row in weights} == {(2 * T, 2)}

    @jax.jit
    def both(*args):
        return [jax.grad(f, (0, 1))(*args) for f in (loss, lw.accelerate(loss, rewrite="always"))]

    leaves_close(*both(*args), 1e-5)


def test_kernels_of_a_convolutional_lstm_leave_the_loop():
    def loss(of_x, of_h, xs):
        def conv(x, kernel):
            return jax.lax.conv_general_dilated(
                x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )

        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(conv(x, of_x) + conv(h, of_h), 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        start = jnp.zeros((B, 8, N))
        return jnp.sum(jax.lax.scan(step, (start, start), xs)[0][0])

    args = normal(3, 2, 4 * N), normal(3, N, 4 * N), normal(T, B, 8, 2)
    counts = lw.explain(loss, *args, rewrite="always", compiled=False).loop_products["after"]
    assert (counts["in the forward loop"], counts["in the backward loop"]) == (1, 1)
    rows = lw.explain(loss, *args, compiled=False).rows
    assert {row.after for row in rows if row.role == "gradient of the weight"} == {"once"}

    @jax.jit
    def both(*args):
        return [jax.grad(f, (0, 1))(*args) for f in (loss, lw.accelerate(loss, rewrite="always"))]

    leaves_close(*both(*args), 1e-5)


# Loops inside other calls


def rnn(w, xs):
    def step(h, x):
        return jnp.tanh(h @ w + x @ w), None

    return jnp.sum(jax.lax.scan(step, jnp.zeros(xs.shape[1:]), xs)[0])


CALLS = {
    "cond": lambda w, xs: jax.lax.cond(w[0, 0] > 5, lambda: 0.0, lambda: rnn(w, xs)),
    "switch": lambda w, xs: jax.lax.switch(
        jnp.int32(w[0, 0] < 5), [lambda w: 1.0, lambda w: rnn(w, xs), jnp.sum], w
    ),
    "checkpoint": jax.checkpoint(rnn),
    "jit in cond": lambda w, xs: jax.lax.cond(w[0, 0] < 5, jax.jit(rnn), lambda w, xs: 0.0, w, xs),
    "vmap": lambda w, xs: jnp.sum(jax.vmap(lambda x: rnn(w, x[:, None]), 1)(xs)),
    "scan": lambda w, xs: jax.lax.scan(lambda c, x: (rnn(w, c * xs), x), 1.0, jnp.ones(2))[0],
}


@pytest.mark.parametrize("name", some(CALLS, 0, 5))
def test_loops_inside_other_calls_are_rewritten(name):
    args = normal(N, N), normal(T, B, N)
    call = CALLS[name]
    counts = lw.explain(call, *args, compiled=False, rewrite="always").loop_products
    before, after = (counts[when]["in the backward loop"] for when in ("before", "after"))
    assert after <= before / 2

    @jax.jit
    def both(*args):
        return [jax.value_and_grad(f, (0, 1))(*args) for f in (call, lw.accelerate(call, rewrite="always"))]

    want, found = both(*args)
    leaves_close(want, found, 1e-5)


def test_what_cannot_be_made_again_is_left():
    policy = jax.checkpoint_policies.dots_saveable
    args = normal(N, N), normal(T, B, N)
    for call in (jax.checkpoint(rnn, policy=policy), jax.custom_jvp(rnn)):
        if isinstance(call, jax.custom_jvp):
            call.defjvp(lambda primals, tangents: (rnn(*primals), 0.0))
        assert str(jax.make_jaxpr(lw.accelerate(call))(*args)) == str(jax.make_jaxpr(call)(*args))


@pytest.mark.slow
def test_a_loop_inside_shard_map():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec

    def over_devices(w, xs):
        return jax.lax.psum(rnn(w, xs), "d")

    args = normal(N, N), normal(T, B, N)
    for check, products in ((False, 1), (True, 4)):
        call = jax.shard_map(
            over_devices, mesh=mesh, in_specs=(spec(), spec()), out_specs=spec(), check_vma=check
        )
        counts = lw.explain(call, *args, compiled=False, rewrite="always").loop_products["after"]
        assert counts["in the backward loop"] == products
        leaves_close(
            jax.grad(call)(*args), jax.jit(jax.grad(lw.accelerate(call, rewrite="always")))(*args), 1e-5
        )


def test_never_is_the_function_itself():
    args = normal(N, N), normal(T, B, N)
    never = lw.accelerate(CALLS["jit in cond"], rewrite="never")
    assert str(jax.make_jaxpr(never)(*args)) == str(jax.make_jaxpr(CALLS["jit in cond"])(*args))
