"""Forms in which people write loops: `[x, h] @ W`, counters with `xs[i]`, loops inside other calls."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lapwing as lw
from lapwing.jaxprs import Loop, equations, interpret, loop_of, scan_counts
from lapwing.loops._bound import BoundLoop
from lapwing.loops._concatenated import split_concatenated
from lapwing.loops._costs import Costs
from lapwing.loops._indexed import rows_of, rows_to_xs
from lapwing.loops._rewrite import _inlined
from tests.loops import step_by_step
from tests.loops.bodies import normal
from tests.loops.reference import leaves_close

T, B, N = 5, 3, 4
AUTO = Costs("auto", "cpu")


def bound_loop(fn, *args) -> BoundLoop:
    """The only loop of a function, on its values: those that are constants of the program are known."""
    closed = jax.make_jaxpr(fn)(*args)
    found = []

    def rule(eqn, inputs):
        if eqn.primitive.name == "scan":
            loop, closed_over = loop_of(eqn)
            found.append(BoundLoop(loop, *loop.split_inputs([*closed_over, *inputs])))

    interpret(closed.jaxpr, [*closed.consts, *args], rule)
    return _inlined(found[0], AUTO)


def count(loop: Loop, name: str) -> int:
    return sum(eqn.primitive.name == name for eqn in equations(loop.jaxpr))


# [x, h] @ W


def concatenated(w, h, xs, order=("x", "h"), axis=-1):
    def step(h, x):
        parts = jnp.concatenate([{"x": x, "h": h}[name] for name in order], axis)
        return jnp.tanh(parts @ w if axis == -1 else (w.T @ parts)), None

    return jax.lax.scan(step, h, xs)[0]


@pytest.mark.parametrize(
    ("order", "axis", "terms"),
    [("xh", -1, 2), ("hx", -1, 2), ("xhx", -1, 3), ("xxh", -1, 2), ("hh", -1, 1), ("xh", 0, 2)],
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
    split = split_concatenated(bound, Costs("always", "cpu"))
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


# xs[i]


def indexed(read, write=None, length=T, start=0, step=1, reverse=False):
    """A loop with a counter, which reads `read(xs, i)` and does `write(ys, row, i)`."""

    def loop(xs, ys, h):
        def body(carry, _):
            h, ys, i = carry
            h = jnp.tanh(h + read(xs, i))
            return (h, write(ys, h, i) if write else ys, i + step), None

        return jax.lax.scan(body, (h, ys, start), None, length=length, reverse=reverse)[0]

    return loop


ROWS = normal(T, N), normal(T, N), normal(N)
READS = {"dynamic_slice", "gather"}


def reads(bound: BoundLoop) -> int:
    return sum(count(bound.loop, name) for name in READS)


@pytest.mark.parametrize(
    "read",
    [
        lambda xs, i: xs[i],
        lambda xs, i: xs[i, :],
        lambda xs, i: jnp.take(xs, i, axis=0),
        lambda xs, i: jax.lax.dynamic_index_in_dim(xs, i, 0, keepdims=False),
        lambda xs, i: jax.lax.dynamic_slice(xs, (i, 0), (1, N))[0],
        lambda xs, i: xs[i - T],
        lambda xs, i: xs[jnp.minimum(i, T - 1)],
    ],
)
def test_rows_read_in_order_are_an_x_of_the_loop(read):
    bound = bound_loop(indexed(read), *ROWS)
    assert reads(bound) == 1
    rewritten = rows_to_xs(bound, AUTO)
    assert reads(rewritten.bound) == 0
    # Neither the counter nor an index is left.
    assert (bound.loop.num_carry, rewritten.bound.loop.num_carry) == (2, 1)
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("start", "count"), [(0, lambda i: i + 1), (T - 1, lambda i: i - 1), (-1, lambda i: -1 + i)]
)
def test_a_counter_may_go_down_and_its_loop_backwards(start, count, reverse):
    def loop(xs, ys, h):
        def body(carry, _):
            h, ys, i = carry
            h = jnp.tanh(h + xs[i])
            return (h, ys.at[i].set(h), count(i)), i

        return jax.lax.scan(body, (h, ys, start), None, length=T, reverse=reverse)

    bound = bound_loop(loop, *ROWS)
    rewritten = rows_to_xs(bound, Costs("always", "cpu"))
    assert reads(rewritten.bound) == 0
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


def test_a_counter_that_overflows_runs_through_no_rows():
    def loop(xs, h):
        def body(carry, _):
            h, i = carry
            return (jnp.tanh(h + xs[i]), i + jnp.uint8(1)), None

        return jax.lax.scan(body, (h, jnp.uint8(253)), None, length=T)[0]

    bound = bound_loop(loop, normal(300, N), normal(N))
    rewritten = rows_to_xs(bound, Costs("always", "cpu"))
    assert rewritten.bound is bound


def test_xs_itself_is_the_x():
    rewritten = rows_to_xs(bound_loop(indexed(lambda xs, i: xs[i]), *ROWS), AUTO)
    assert rewritten.bound.xs[0] is ROWS[0]


@pytest.mark.parametrize(
    "write",
    [
        lambda ys, y, i: ys.at[i].set(y),
        lambda ys, y, i: jax.lax.dynamic_update_index_in_dim(ys, y, i, 0),
        lambda ys, y, i: ys.at[T - 1 - i].set(y),
        lambda ys, y, i: ys.at[i, :].set(y),
    ],
)
def test_rows_that_are_written_once_are_a_y_of_the_loop(write):
    bound = bound_loop(indexed(lambda xs, i: xs[i], write), *ROWS)
    rewritten = rows_to_xs(bound, AUTO)
    assert (rewritten.bound.loop.num_carry, len(rewritten.bound.loop.ys)) == (1, 1)
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


@pytest.mark.parametrize(
    ("read", "write"),
    [
        (lambda xs, i: xs[i + 1], None),  # the last row twice
        (lambda xs, i: xs[i // 2], None),
        (lambda xs, i: xs[2], None),
        (lambda xs, i: xs[(i * i) % T], None),
        (lambda xs, i: xs[T - 1 - i], None),  # a copy, for no product
        (lambda xs, i: 0, lambda ys, y, i: ys.at[i // 2].set(y)),
        (lambda xs, i: 0, lambda ys, y, i: ys.at[i + 1].set(y)),  # the last is dropped
        (lambda xs, i: 0, lambda ys, y, i: ys.at[i].add(y)),
        (lambda xs, i: 0, lambda ys, y, i: ys.at[i].set(y + ys[0])),
    ],
)
def test_other_rows_are_read_and_written_as_they_were(read, write):
    bound = bound_loop(indexed(read, write), *ROWS)
    assert rows_to_xs(bound, AUTO).bound is bound


@pytest.mark.parametrize(
    "read", [lambda xs, i: xs[:, T - 1 - i], lambda xs, i: jax.vmap(lambda row: row[i])(xs)]
)
def test_a_copy_of_the_rows_is_made_for_a_product(read):
    def loop(w, xs, h):
        return jax.lax.fori_loop(0, T, lambda i, h: jnp.tanh(h + read(xs, i) @ w), h)

    bound = bound_loop(loop, normal(N, N), normal(B, T, N), normal(B, N))
    rewritten = rows_to_xs(bound, AUTO)
    assert reads(rewritten.bound) == 0
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


def test_why_rows_are_not_taken_is_said():
    bound = bound_loop(indexed(lambda xs, i: xs[T - 1 - i]), *ROWS)
    (decision,) = rows_to_xs(bound, AUTO).decisions
    reason = "its rows would be copied, and no product that could leave the loop reads them"
    assert decision.against == reason

    def loss(*args):
        return jnp.sum(indexed(lambda xs, i: xs[T - 1 - i])(*args)[0])

    (note,) = lw.explain(loss, *ROWS, compiled=False).notes
    assert note.startswith("test_forms.py:")
    assert note.endswith(f"left: {reason}")


@pytest.mark.parametrize(
    ("numbers", "clamps", "taken"),
    [
        ([0, 1, 2], False, [0, 1, 2]),
        ([3, 2, 1], False, [3, 2, 1]),
        ([1, 3, 5], False, [1, 3, 5]),
        ([4, 5, 6], False, None),
        ([4, 5, 6], True, None),  # [4, 5, 5]
        ([-1, 0, 1], True, None),  # [0, 0, 1]
        ([0, 1, 3], False, None),
        ([2, 2, 2], False, None),
    ],
)
def test_rows_are_known_where_they_are_apart_by_the_same_distance(numbers, clamps, taken):
    array = np.arange(12).reshape(2, 6)
    rows = rows_of(array.shape, [2, 1], np.array([[0, n] for n in numbers]), clamps)
    assert (rows is None) == (taken is None)
    if rows is not None:
        assert rows.take(array).tolist() == array.T[taken].tolist()
        put = np.array(array)
        put[:, taken] = -np.arange(6).reshape(3, 2).T
        assert rows.put(jnp.asarray(array), -np.arange(6).reshape(3, 2)).tolist() == put.tolist()


def test_a_counter_that_starts_at_an_unknown_number_is_left():
    def loop(xs, h, start):
        return jax.lax.scan(lambda c, _: ((c[0] + xs[c[1]], c[1] + 1), None), (h, start), length=T)[0]

    args = ROWS[0], ROWS[2], jnp.int32(0)
    found = jax.jit(jax.grad(lambda *args: jnp.sum(lw.accelerate(loop)(*args)[0] ** 2)))(*args)
    want = jax.grad(lambda *args: jnp.sum(loop(*args)[0] ** 2))(*args)
    leaves_close(want, found, 1e-6)


@pytest.mark.parametrize(
    "loops", [pytest.param(12, id="some"), pytest.param(200, id="many", marks=pytest.mark.slow)]
)
def test_any_counter_gives_the_same_numbers(loops):
    """Whatever start, step, bounds, axis and direction: rows taken or left, the loop gives what it gave."""

    @settings(max_examples=loops, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        start=st.integers(-4, 6), step=st.integers(-3, 3), rows=st.sampled_from([3, 6]), offset=st.integers(-2, 2),
        axis=st.integers(0, 1), reverse=st.booleans(), clamps=st.booleans(),
    )  # fmt: skip
    def agree(start, step, rows, offset, axis, reverse, clamps):
        def read(xs, i):
            if clamps:
                return jax.lax.dynamic_index_in_dim(xs, i + offset, axis, keepdims=False)
            return xs[i + offset] if axis == 0 else xs[:, i + offset]

        def write(ys, y, i):
            return ys.at[i].set(y) if axis == 0 else ys.at[:, i].set(y)

        shape = (rows, N) if axis == 0 else (N, rows)
        function = indexed(read, write, length=3, start=start, step=step, reverse=reverse)
        bound = bound_loop(function, normal(*shape), normal(*shape, seed=1), normal(N))
        rewritten = rows_to_xs(bound, Costs("always", "cpu"))
        ours = jax.make_jaxpr(lambda: rewritten.undo(rewritten.bound.run()))()
        leaves_close(step_by_step.run(jax.make_jaxpr(bound.run)()), step_by_step.run(ours), 1e-6)

    agree()


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


@pytest.mark.parametrize("name", CALLS)
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
