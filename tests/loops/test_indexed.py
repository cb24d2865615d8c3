"""Loops with a counter: `xs[i]` becomes an x of the loop and `ys.at[i].set(y)` a y, where its rows are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lapwing as lw
from lapwing.jaxprs import equations
from lapwing.loops._bound import BoundLoop
from lapwing.loops._indexed import rows_of, rows_to_xs
from tests.loops import step_by_step
from tests.loops.bodies import normal
from tests.loops.bound import ALWAYS, AUTO, bound_loop, count
from tests.loops.reference import leaves_close
from tests.slow import some

T, B, N = 5, 3, 4


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
    some(
        [
            lambda xs, i: xs[i],
            lambda xs, i: xs[i, :],
            lambda xs, i: jnp.take(xs, i, axis=0),
            lambda xs, i: jax.lax.dynamic_index_in_dim(xs, i, 0, keepdims=False),
            lambda xs, i: jax.lax.dynamic_slice(xs, (i, 0), (1, N))[0],
            lambda xs, i: xs[i - T],
            lambda xs, i: xs[jnp.minimum(i, T - 1)],
        ],
        0,
        3,
        6,
    ),
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
    ("start", "count"), some([(0, lambda i: i + 1), (T - 1, lambda i: i - 1), (-1, lambda i: -1 + i)], 1)
)
def test_a_counter_may_go_down_and_its_loop_backwards(start, count, reverse):
    def loop(xs, ys, h):
        def body(carry, _):
            h, ys, i = carry
            h = jnp.tanh(h + xs[i])
            return (h, ys.at[i].set(h), count(i)), i

        return jax.lax.scan(body, (h, ys, start), None, length=T, reverse=reverse)

    bound = bound_loop(loop, *ROWS)
    rewritten = rows_to_xs(bound, ALWAYS)
    assert reads(rewritten.bound) == 0
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


def test_a_number_that_is_subtracted_from_another_is_no_counter():
    def loop(xs, h):
        body = lambda carry, _: ((jnp.tanh(carry[0] + xs[carry[1]]), 1 - carry[1]), None)  # noqa: E731
        return jax.lax.scan(body, (h, T - 1), None, length=T)[0]

    bound = bound_loop(loop, ROWS[0], ROWS[2])
    assert rows_to_xs(bound, ALWAYS).bound is bound


def test_a_counter_that_overflows_runs_through_no_rows():
    def loop(xs, h):
        def body(carry, _):
            h, i = carry
            return (jnp.tanh(h + xs[i]), i + jnp.uint8(1)), None

        return jax.lax.scan(body, (h, jnp.uint8(253)), None, length=T)[0]

    bound = bound_loop(loop, normal(300, N), normal(N))
    rewritten = rows_to_xs(bound, ALWAYS)
    assert rewritten.bound is bound


def test_xs_itself_is_the_x():
    rewritten = rows_to_xs(bound_loop(indexed(lambda xs, i: xs[i]), *ROWS), AUTO)
    assert rewritten.bound.xs[0] is ROWS[0]


@pytest.mark.parametrize(
    "write",
    some(
        [
            lambda ys, y, i: ys.at[i].set(y),
            lambda ys, y, i: jax.lax.dynamic_update_index_in_dim(ys, y, i, 0),
            lambda ys, y, i: ys.at[T - 1 - i].set(y),
            lambda ys, y, i: ys.at[i, :].set(y),
        ],
        0,
        2,
    ),
)
def test_rows_that_are_written_once_are_a_y_of_the_loop(write):
    bound = bound_loop(indexed(lambda xs, i: xs[i], write), *ROWS)
    rewritten = rows_to_xs(bound, AUTO)
    assert (rewritten.bound.loop.num_carry, len(rewritten.bound.loop.ys)) == (1, 1)
    leaves_close(bound.run(), rewritten.undo(rewritten.bound.run()), 1e-6)


@pytest.mark.parametrize(
    ("read", "write"),
    some(
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
        0,
        4,
        8,
    ),
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
    assert note.startswith("test_indexed.py:")
    assert note.endswith(f"left: {reason}")


@pytest.mark.parametrize(
    ("numbers", "clamps", "taken"),
    some(
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
        1,
        3,
        5,
    ),
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
        rewritten = rows_to_xs(bound, ALWAYS)
        ours = jax.make_jaxpr(lambda: rewritten.undo(rewritten.bound.run()))()
        leaves_close(step_by_step.run(jax.make_jaxpr(bound.run)()), step_by_step.run(ours), 1e-6)

    agree()


def test_rows_are_taken_in_the_gradient_of_a_function_that_was_traced_before():
    """By then the counter's start is a tracer; that it was known is remembered."""

    @jax.jit
    def loss(xs, h):
        step = lambda carry, _: ((jnp.tanh(carry[0] + xs[carry[1]]), carry[1] + 1), None)  # noqa: E731
        return jnp.sum(lw.scan(step, (h, 0), length=T, rewrite="always")[0][0])

    program = jax.make_jaxpr(jax.grad(loss))(ROWS[0], ROWS[2])
    names = {eqn.primitive.name for eqn in equations(program.jaxpr)}
    assert names.isdisjoint({*READS, "scatter-add", "dynamic_update_slice"})
