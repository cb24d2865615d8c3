"""What the passes do not know runs exactly as `jax.lax.scan` runs it: the same program, the same errors."""

import functools
import types

import jax
import jax.core
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import lapwing as lw
from lapwing.jaxprs import Loop, loop_of, scans
from lapwing.loops._known import unknown, unknown_inputs
from tests.loops.bodies import normal
from tests.loops.reference import leaves_close
from tests.slow import some

N, T = 4, 6


@jax.custom_vjp
def product(x, w):
    return x @ w


product.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, g: (g @ kept[1].T, jnp.outer(kept[0], g)))

# A primitive of somebody's own, whose value depends on what it is batched over, as Equinox's unvmap_any does.
largest_p = core.Primitive("largest_of_batch")
largest_p.def_impl(jnp.max)
largest_p.def_abstract_eval(lambda x: jax.core.ShapedArray((), x.dtype))
batching.primitive_batchers[largest_p] = lambda args, axes: (largest_p.bind(*args), None)
mlir.register_lowering(largest_p, mlir.lower_fun(jnp.max, multiple_results=False))


def with_custom_vjp(scan, w, xs):
    return scan(lambda h, x: (jnp.tanh(product(h, w) + x @ w), h), jnp.ones(N), xs)


def with_own_primitive(scan, w, xs):
    def step(h, x):
        scale = jax.lax.stop_gradient(largest_p.bind(jax.lax.stop_gradient(x)))
        return jnp.tanh(h @ w + (scale * x) @ w), h

    return scan(step, jnp.ones(N), xs)


def with_ref(scan, w, xs):
    ref = jax.new_ref(jnp.zeros(N))

    def step(h, x):
        h = jnp.tanh(h @ w + x @ w)
        ref[...] += jax.lax.stop_gradient(h)
        return h, h

    return scan(step, jnp.ones(N), xs), ref[...]


LOOPS = {
    "custom_vjp": (with_custom_vjp, "it calls a function with a custom_vjp"),
    "own primitive": (
        with_own_primitive,
        "it calls largest_of_batch, which is not an operation that the passes know",
    ),
    "ref": (with_ref, "it has side effects"),
}


def loss(run, scan, w, xs):
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(run(scan, w, xs)))


def loop_in(fn, *args) -> Loop:
    (eqn,) = scans(jax.make_jaxpr(fn)(*args).jaxpr, lambda eqn: None)
    return loop_of(eqn)[0]


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_not_known_runs_as_it_came(name: str):
    run, reason = LOOPS[name]
    w, xs = normal(N, N), normal(T, N)
    assert unknown(loop_in(functools.partial(run, jax.lax.scan), w, xs)) == reason
    ours = functools.partial(lw.scan, rewrite="always")
    programs = [
        str(jax.make_jaxpr(jax.grad(functools.partial(loss, run, scan)))(w, xs))
        for scan in (jax.lax.scan, ours)
    ]
    assert programs[0] == programs[1]


def test_explain_says_why_a_loop_is_left():
    story = lw.explain(
        functools.partial(loss, with_custom_vjp, jax.lax.scan), normal(N, N), normal(T, N), compiled=False
    )
    assert "left: it calls a function with a custom_vjp" in {row.why for row in story.rows}


def test_a_primitive_that_looks_at_its_batch_sees_one_step():
    ours = functools.partial(lw.scan, rewrite="always")
    want, got = (with_own_primitive(scan, normal(N, N), normal(T, N)) for scan in (jax.lax.scan, ours))
    leaves_close(want, got, 1e-6)


def test_a_batch_of_loops_with_a_custom_vjp_has_a_gradient():
    def total(scan, w, xs):
        return jnp.sum(jax.vmap(functools.partial(loss, with_custom_vjp, scan), (None, 0))(w, xs))

    w, xs = normal(N, N), normal(3, T, N)
    ours = functools.partial(lw.scan, rewrite="always")
    want, got = (jax.grad(functools.partial(total, scan))(w, xs) for scan in (jax.lax.scan, ours))
    leaves_close(want, got, 1e-6)


def test_a_memory_policy_cuts_what_no_pass_may_touch():
    w, xs = normal(N, N), normal(T, N)
    cut = functools.partial(loss, with_custom_vjp, functools.partial(lw.scan, memory=2))
    assert f"length={T // 2}" in str(jax.make_jaxpr(cut)(w, xs))
    want = jax.grad(functools.partial(loss, with_custom_vjp, jax.lax.scan))(w, xs)
    leaves_close(want, jax.grad(cut)(w, xs), 1e-6)


def test_explicit_sharding_is_left_to_jax():
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        xs = jax.device_put(normal(T, N), NamedSharding(mesh, P(None, "data")))
        assert unknown_inputs(xs)
        step = lambda h, x: (jnp.tanh(h) + x, h)  # noqa: E731
        want, got = (scan(step, xs[0], xs) for scan in (jax.lax.scan, lw.scan))
    assert jax.typeof(got[1]) == jax.typeof(want[1])


def test_what_varies_over_a_shard_map_is_left_to_jax():
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))

    def total(scan, w, xs):
        def one_device(w, xs):
            last, _ = scan(lambda h, x: (jnp.tanh(h @ w + x @ w), None), xs[0], xs)
            return jax.lax.psum(jnp.sum(last), "data")

        return jax.shard_map(one_device, mesh=mesh, in_specs=(P(), P(None, "data")), out_specs=P())(w, xs)

    programs = [
        str(jax.make_jaxpr(jax.grad(functools.partial(total, scan)))(normal(N, N), normal(T, 2, N)))
        for scan in (jax.lax.scan, functools.partial(lw.scan, rewrite="always"))
    ]
    assert programs[0] == programs[1]


def test_without_jit_a_step_sees_numbers():
    seen = []

    def step(h, x):
        seen.append(float(h))
        return h + x, None

    with jax.disable_jit():
        lw.scan(step, jnp.float32(0), jnp.ones(3))
        lw.accelerate(lambda xs: jax.lax.scan(step, jnp.float32(0), xs))(jnp.ones(3))
    assert seen == [0, 1, 2, 0, 1, 2]


def test_split_transpose_is_jaxs():
    def run(scan):
        return jax.make_jaxpr(lambda xs: scan(lambda h, x: (h * x, h), 1.0, xs, _split_transpose=True))(
            jnp.ones(3)
        )

    assert str(run(jax.lax.scan)) == str(run(lw.scan))


def test_an_error_of_the_step_is_raised_once():
    calls = []

    def step(h, x):
        calls.append(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        lw.scan(step, 0.0, jnp.ones(3))
    assert len(calls) == 1


def test_what_jax_refuses_it_refuses_in_its_own_words():
    with pytest.raises(TypeError) as theirs:
        jax.lax.scan(lambda h, x: (h, None), types.SimpleNamespace(), jnp.ones(3))
    with pytest.raises(TypeError) as ours:
        lw.scan(lambda h, x: (h, None), types.SimpleNamespace(), jnp.ones(3))
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("new", [False, True])
def test_a_policy_of_checkpoint_sees_the_products_of_a_loop(new: bool):
    """`jax.checkpoint(policy=...)` around a loop saves products inside it; hidden in a rule, they are recomputed."""

    def products_of_the_gradient(scan, w):
        def loop(w):
            return scan(lambda h, _: (jnp.sin(jnp.sin(h @ w) @ w), None), jnp.ones(N), length=2)[0]

        value, back = jax.vjp(jax.checkpoint(loop, policy=jax.checkpoint_policies.checkpoint_dots), w)
        return str(jax.make_jaxpr(back)(value)).count("dot_general")

    ours = functools.partial(lw.scan, rewrite="always")
    before = jax.config.values.get("jax_remat3")
    if new and before is None:
        pytest.skip("jax 0.10.0 has one way to rematerialize")
    try:
        if before is not None:
            jax.config.update("jax_remat3", new)
        found = [products_of_the_gradient(scan, normal(N, N)) for scan in (jax.lax.scan, ours)]
    finally:
        if before is not None:
            jax.config.update("jax_remat3", before)
    assert found[0] == found[1]


def test_a_carry_beside_a_branch_gets_no_tangent():
    """A custom rule that refuses tangents is not asked for one, since none gets there."""

    @jax.custom_jvp
    def refusing(y):
        return y

    @refusing.defjvp
    def _(primals, tangents):
        raise RuntimeError("no tangent was expected")

    def run(scan, x, y):
        def body(carry):
            x, y = carry
            return x * jnp.sin(refusing(y)), y + 1

        def step(carry, i):
            return jax.lax.cond(i < 2, body, lambda carry: carry, carry), None

        return scan(step, (x, y), jnp.arange(T))[0][0]

    ours = functools.partial(lw.scan, rewrite="always")
    want, got = (jax.grad(functools.partial(run, scan))(1.2, 0.7) for scan in (jax.lax.scan, ours))
    leaves_close(want, got, 1e-6)


@pytest.mark.parametrize("shape", some(["10, b, 4", "n, 2, 4"], 1))
def test_shapes_without_numbers_can_be_exported(shape: str):
    """jax.export traces a program once for all sizes of a batch, or of time: nothing can be weighed."""

    def gradient(scan, w, xs):
        def total(w):
            return jnp.sum(scan(lambda h, x: (jnp.tanh(h @ w + x), h), 0 * xs[0], xs)[1])

        return jax.grad(total)(w)

    w, xs = normal(N, N), normal(10, 2, N)
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), jnp.float32)
    for scan in (lw.scan, functools.partial(lw.scan, rewrite="always")):
        exported = jax.export.export(jax.jit(functools.partial(gradient, scan)))(w, symbolic)
        leaves_close([gradient(jax.lax.scan, w, xs)], [exported.call(w, xs)], 1e-5)


def test_values_that_vary_over_the_devices_of_a_shard_map_are_left_as_they_are():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))

    def mapped(scan, xs):
        def rows(xs):
            return scan(lambda h, x: (jnp.tanh(h * x), h), xs[0], xs)[1]

        return jnp.sum(jax.shard_map(rows, mesh=mesh, in_specs=P(None, "d"), out_specs=P(None, "d"))(xs))

    programs = [
        str(jax.make_jaxpr(jax.grad(functools.partial(mapped, scan)))(normal(T, 2, N)))
        for scan in (jax.lax.scan, functools.partial(lw.scan, rewrite="always"))
    ]
    assert programs[0] == programs[1]


def test_xs_in_the_memory_of_the_host_are_left_there():
    def loss(scan, w, xs):
        def step(h, x):
            return jnp.tanh(h @ w), x

        return scan(step, jnp.zeros((2, 3)), jax.device_put(xs, jax.memory.Space.Host))

    args = jnp.eye(3), jnp.ones((4, 2, 3))
    programs = [str(jax.make_jaxpr(functools.partial(loss, scan))(*args)) for scan in (lw.scan, jax.lax.scan)]
    assert programs[0] == programs[1]
