"""Small loops on a CPU become one kernel where that is safe and faster, and nothing else changes."""

import functools
import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compute_on import compute_on

import lapwing as lw
from lapwing.bench import _small_bodies as bodies
from lapwing.jaxprs import interpret, loop_of, open_calls
from lapwing.loops import _lowering, _marks, _small
from lapwing.loops import _written_out as written_out
from tests.slow import some


def kernels(fn, *args):
    """How many loops of the function are lowered as one kernel."""
    return jax.jit(fn).lower(*args).as_text().count('xla_cpu_small_call = "true"')


def cell(scan, width=4, length=30, x=None):
    def loss(w, xs):
        return jnp.sum(scan(lambda h, x: (jnp.tanh(h * w + x), h), w, xs)[1])

    return loss, (jnp.linspace(0.1, 0.9, width), jnp.ones(length))


def test_the_hook_is_installed():
    assert _lowering.INSTALLED


SHORT = {
    "scalars": lambda scan: bodies.scalar_carries(scan, carries=6, steps=20),
    "Hodgkin-Huxley": lambda scan: bodies.hodgkin_huxley(scan, steps=20, dtype=jnp.float32),
    "matrix": lambda scan: bodies.matrix_powers(scan, width=4, steps=20, dtype=jnp.float32),
    "RNN": lambda scan: bodies.small_rnn(scan, steps=20),
}


@pytest.mark.parametrize("name", some(SHORT, 0))
def test_the_gradient_of_a_small_loop_is_two_kernels_with_the_same_results(name):
    plain, args = SHORT[name](jax.lax.scan)
    loss, _ = SHORT[name](lw.scan)
    assert kernels(jax.grad(loss), *args) == 2
    assert kernels(loss, *args) == 1
    found, expected = (jax.jit(jax.value_and_grad(f))(*args) for f in (loss, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6), found, expected)


def test_loops_of_others_are_lowered_as_ever():
    loss, args = cell(jax.lax.scan)
    text = jax.jit(jax.grad(loss)).lower(*args).as_text()
    assert "xla_cpu_small_call" not in text
    assert _marks.MARK not in text


@pytest.mark.parametrize("options", [{"rewrite": "never"}, {"rewrite": "never", "memory": 5}])
def test_never_means_never(options):
    loss, args = cell(lambda *args: lw.scan(*args, **options))
    assert kernels(jax.grad(loss), *args) == 0


def test_what_was_small_when_it_was_traced_need_not_be_when_it_is_lowered():
    loss, args = cell(lw.scan)
    for batch, expected in ((3, 2), (1000, 0)):
        many = jnp.broadcast_to(args[0], (batch, 4))
        gradient = jax.vmap(jax.grad(loss), (0, None))
        assert kernels(gradient, many, args[1]) == expected
        np.testing.assert_allclose(
            jax.jit(gradient)(many, args[1])[1], jax.jit(jax.grad(cell(jax.lax.scan)[0]))(*args), rtol=2e-6
        )


def test_what_is_left_of_a_rewritten_loop_may_be_small():
    def loss(v, w, xs):
        def step(h, x):
            return jnp.tanh(h * w + x @ v), h

        return jnp.sum(lw.scan(step, w, xs)[1])

    args = (jnp.ones((300, 4)), jnp.ones(4), jnp.ones((20, 300)))
    assert kernels(jax.grad(loss), *args) == 2


def test_a_loop_inside_a_small_loop_is_no_kernel_of_its_own():
    def loss(w):
        inner = lambda h: lw.scan(lambda h, _: (jnp.tanh(h * w), None), h, None, length=10)[0]  # noqa: E731
        return jnp.sum(lw.scan(lambda h, _: (inner(h), h), w, None, length=12)[1]) + jnp.sum(inner(w))

    w = jnp.linspace(0.5, 1.5, 4)
    # The loop of loops and the inner loop by itself, forward and backward.
    assert kernels(jax.grad(loss), w) == 4
    with jax.disable_jit():
        expected = jax.grad(loss)(w)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(w), expected, rtol=1e-5)


def test_explain_says_which_loops_are_one_kernel_and_why_others_are_not():
    def loss(w):
        inner = lambda h: lw.scan(lambda h, _: (jnp.tanh(h * w), None), h, None, length=10)[0]  # noqa: E731
        small = lw.scan(lambda h, _: (inner(h), h), w, None, length=12)[1]
        sorting = lw.scan(lambda h, _: (jnp.sort(jnp.sin(h * w)), inner(h)), w, None, length=20)[1]
        return jnp.sum(small) + jnp.sum(sorting)

    w = jnp.linspace(0.5, 1.5, 4)
    story = lw.explain(loss, w, compiled=False)
    assert [(row.place, row.steps, row.why) for row in story.loops] == [
        ("forward loop", 12, ""),
        ("forward loop", 20, "it holds sort"),
        ("forward loop", 10, ""),
        ("backward loop", 20, ""),
        ("backward loop", 12, ""),
    ]
    assert sum(row.one_kernel for row in story.loops) == kernels(jax.grad(loss), w) == 4
    assert "the forward loop, 20 steps: not one kernel: it holds sort" in str(story)
    assert "the backward loop, 12 steps: one kernel" in str(story)
    assert story.to_json()["loops"][1]["why"] == "it holds sort"
    as_it_is = lw.explain(cell(jax.lax.scan)[0], *cell(jax.lax.scan)[1], rewrite="never", compiled=False)
    assert {row.why for row in as_it_is.loops} == {"it runs exactly as it was written"}


OBSTACLES = {
    "sort": (jnp.sort, (4,), "it holds sort"),
    "scatter-mul": (lambda h: h.at[jnp.argmax(h)].mul(2.0), (4,), "it holds scatter-mul"),
    "a large scatter": (
        lambda h: h.at[jnp.arange(40)].add(1.0), (40,), "there are 1600 comparisons in a scatter-add, more than 1024"
    ),
    "cholesky": (lambda h: jnp.linalg.cholesky(h @ h.T + jnp.eye(3)), (3, 3), "it holds cholesky"),
    "a large array": (jnp.sin, (193,), "a step holds an array of 193 numbers, more than 192"),
    "tiny products": (
        lambda h: h @ jnp.ones((3, 3)), (3, 3), "it is so small that XLA makes it one kernel itself"
    ),
    "a large product": (
        lambda h: h @ jnp.ones((12, 12)), (8, 12), "there are 1152 multiplications in a product, more than 1024"
    ),
    "half precision": (lambda h: h.astype(jnp.bfloat16).astype(jnp.float32), (4,), "it computes with bfloat16[4]"),
    "fft": (lambda h: jnp.fft.fft(h).real, (4,), "it computes with complex64[4]"),
    "many equations": (
        lambda h: functools.reduce(lambda h, _: jnp.sin(h), range(600), h), (4,), "its step has more than 600 equations"
    ),
    "work for the host": (compute_on("device_host")(jnp.sin), (4,), "sin runs elsewhere: device_host"),
    "a product in a branch": (
        lambda h: jax.lax.cond(jnp.sum(h) > 0, lambda h: jnp.eye(4) @ h, jnp.sin, h), (4,),
        "cond holds a loop or a product",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", some(OBSTACLES, 0, 4, 7, 9, 10))
def test_what_a_kernel_cannot_hold_is_left_to_jax(name):
    change, shape, expected = OBSTACLES[name]

    def loss(h, scan=lw.scan):
        return jnp.sum(scan(lambda h, _: (jnp.tanh(change(h)), None), h, None, length=20)[0])

    h = jnp.linspace(0.1, 1, int(np.prod(shape))).reshape(shape)
    assert kernels(loss, h) == 0
    jaxpr = jax.make_jaxpr(lambda h: loss(h, jax.lax.scan))(h).jaxpr
    (scan,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
    assert _small.obstacle(loop_of(scan)[0]) == expected


def test_a_loop_of_few_steps_or_with_a_callback_is_left_to_jax():
    def with_callback(h, _):
        jax.debug.callback(lambda h: None, h)
        return jnp.sin(h), None

    assert kernels(lambda h: lw.scan(with_callback, h, None, length=20)[0], 1.0) == 0
    assert kernels(lambda h: lw.scan(lambda h, _: (jnp.sin(h), None), h, None, length=4)[0], 1.0) == 0


def test_what_is_exported_holds_no_kernel_that_another_machine_may_not_know():
    loss, args = cell(lw.scan)
    exported = jax.export.export(jax.jit(jax.grad(loss)))(*args)
    assert "xla_cpu_small_call" not in exported.mlir_module()
    both = jax.export.export(jax.jit(loss), platforms=("cpu", "cuda"))(*args)
    plain = jax.export.export(jax.jit(cell(jax.lax.scan)[0]), platforms=("cpu", "cuda"))(*args)
    assert both.mlir_module().count("stablehlo.while") == plain.mlir_module().count("stablehlo.while") == 1
    np.testing.assert_allclose(exported.call(*args), jax.grad(cell(jax.lax.scan)[0])(*args), rtol=1e-6)


def test_the_mark_is_not_seen_in_the_program():
    """Of a loop with products, which is left to jax's own derivative."""
    loss, args = bodies.small_rnn(lw.scan, width=8, steps=20)
    plain, _ = bodies.small_rnn(jax.lax.scan, width=8, steps=20)
    strip = lambda fn: str(jax.make_jaxpr(fn)(*args))  # noqa: E731
    assert strip(loss) == strip(plain)
    assert strip(jax.grad(loss)) == strip(jax.grad(plain))


def test_a_batched_product_is_a_sum_of_products():
    a, b = (
        jax.random.normal(jax.random.key(0), (2, 3, 4, 5)),
        jax.random.normal(jax.random.key(1), (4, 6, 2, 5)),
    )
    numbers = (((3,), (3,)), ((0, 2), (2, 0)))
    expected = jax.lax.dot_general(a, b, numbers)
    found = written_out.product(a, b, numbers, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


UPDATES = {
    "one number": lambda h, u: h.at[1, 2].add(u[0, 0]),
    "one number, dropped": lambda h, u: h.at[7, 2].set(u[0, 0], mode="drop"),
    "rows, one twice": lambda h, u: h.at[jnp.array([0, 2, 0])].add(u[:3]),
    "rows, one dropped": lambda h, u: h.at[jnp.array([0, 9])].set(u[:2], mode="drop"),
    "columns": lambda h, u: h.at[:, jnp.array([3, 1])].set(u[:, :2]),
    "a window": lambda h, u: h.at[1:3, 1:4].add(u[:2, :3]),
    "batches": lambda h, u: jax.vmap(lambda h, u, i: h.at[i].add(u[:2]))(
        h, u, jnp.array([[0, 1]] * 3 + [[2, 2]])
    ),
    "the last one stays": lambda h, u: h.at[jnp.array([1, 1])].set(u[:2]),
    "clipped": lambda h, u: h.at[jnp.array([9, 0])].add(u[:2], mode="clip"),
}


@pytest.mark.parametrize("name", some(UPDATES, 3, 4, 8))
def test_a_scatter_is_written_out(name):
    h, u = jnp.arange(16.0).reshape(4, 4), 100 + jnp.arange(16.0).reshape(4, 4)
    closed = jax.make_jaxpr(UPDATES[name])(h, u)
    seen = []

    def rule(eqn, inputs):
        seen.append(eqn.primitive.name)
        return written_out.written_out(eqn, inputs)

    # What a user's setting forbids the user's own code is not done in its place either.
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        (found,) = interpret(closed.jaxpr, [*closed.consts, h, u], open_calls(rule))
    assert written_out.SCATTERS & {*seen}
    np.testing.assert_array_equal(found, UPDATES[name](h, u))


def test_a_kernel_returns_its_arguments_since_one_that_nothing_reads_ends_the_process():
    loss, args = cell(lw.scan)
    text = jax.jit(loss).lower(*args).as_text()
    assert text.count("stablehlo.optimization_barrier") == 2


def run_programs(first, last, *options):
    command = [sys.executable, "-m", "tests.loops.small_programs", str(first), str(last), *options]
    # As users run them: without its optimizations, XLA itself is off by 1e-7 in float64.
    plain = {k: v for k, v in os.environ.items() if k not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")}
    done = subprocess.run(command, capture_output=True, text=True, env=plain)
    lines = [line for line in done.stdout.splitlines() if "begins" not in line]
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]} ended the process: {done.stderr[-2000:]}"
    return [dict(part.split("=") for part in line.split()[1:]) | {"seed": line.split()[0]} for line in lines]


@pytest.mark.slow
def test_random_loops_agree():
    found = run_programs(21, 27)
    assert sum(int(each["kernels"]) for each in found) >= 4
    assert [each for each in found if float(each["error"]) > 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_hundreds_of_random_loops_agree_and_none_ends_the_process(first):
    found = run_programs(first, first + 50)
    assert [each for each in found if float(each["error"]) > 1] == []
