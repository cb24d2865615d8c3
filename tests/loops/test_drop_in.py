"""The corners of being a drop-in: errors, precision, keys, donation, sharding, caching, other people's loops."""

import functools
import os
import socket
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import lapwing as lw
from lapwing.jaxprs import equations, scan_counts
from tests.loops.bodies import normal
from tests.loops.reference import leaves_close
from tests.slow import some

N, T, B = 4, 6, 3


def vanilla(scan, w, xs, **options):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h

    return jnp.sum(scan(step, jnp.zeros((xs.shape[1], N), w.dtype), xs, **options)[1])


def test_a_carry_of_another_type_names_the_leaf():
    def step(carry, x):
        return {"count": carry["count"], "h": carry["h"][1:]}, None

    with pytest.raises(TypeError, match=r"\['h'\]") as ours:
        lw.scan(step, {"count": 0, "h": jnp.ones(3)}, jnp.ones(3))
    with pytest.raises(TypeError) as theirs:
        jax.lax.scan(step, {"count": 0, "h": jnp.ones(3)}, jnp.ones(3))
    assert str(ours.value) == str(theirs.value)


def test_lengths_that_differ_are_refused_as_by_jax():
    with pytest.raises(ValueError, match="leading axis sizes"):
        lw.scan(lambda c, x: (c, None), 0.0, (jnp.ones(3), jnp.ones(4)))


def test_an_unknown_rewrite_says_what_is_allowed():
    with pytest.raises(ValueError, match="rewrite must be 'auto', 'always' or 'never', not 'sometimes'"):
        lw.scan(lambda c, x: (c, None), 0.0, jnp.ones(3), rewrite="sometimes")


def test_never_leaves_the_loop_as_it_is():
    gradient = functools.partial(jax.grad, argnums=0)
    plain = jax.make_jaxpr(gradient(functools.partial(vanilla, jax.lax.scan)))(normal(N, N), normal(T, B, N))
    never = jax.make_jaxpr(gradient(functools.partial(vanilla, lw.scan, rewrite="never")))(
        normal(N, N), normal(T, B, N)
    )
    assert str(plain) == str(never)


@pytest.mark.slow
def test_bfloat16_is_at_least_as_exact_as_the_plain_loop():
    w, xs = normal(N, N), normal(50, 16, N)
    exact = jax.grad(functools.partial(vanilla, jax.lax.scan))(w, xs)
    low = (w.astype(jnp.bfloat16), xs.astype(jnp.bfloat16))

    def error(scan):
        gradient = jax.grad(functools.partial(vanilla, scan))(*low)
        assert gradient.dtype == jnp.bfloat16
        return jnp.abs(gradient.astype(jnp.float32) - exact).max()

    assert error(functools.partial(lw.scan, rewrite="always")) <= error(jax.lax.scan)


def test_donated_buffers():
    w, xs = normal(N, N), normal(T, B, N)
    want = jax.grad(functools.partial(vanilla, jax.lax.scan))(w, xs)
    update = jax.jit(lambda w, xs: w - jax.grad(functools.partial(vanilla, lw.scan))(w, xs), donate_argnums=0)
    np.testing.assert_allclose(update(w.copy(), xs), w - want, atol=1e-5)


def test_closed_over_tracers_and_aux():
    def loss(w, xs, scan):
        scale = jnp.sin(w[0, 0])

        def step(h, x):
            h = jnp.tanh(h @ w * scale + x)
            return h, {"h": h, "norm": jnp.abs(h).max()}

        last, aux = scan(step, jnp.zeros((B, N)), xs)
        return jnp.sum(last), aux

    arguments = normal(N, N), normal(T, B, N)
    (ours, aux), (want, want_aux) = (
        jax.jit(functools.partial(jax.grad(loss, has_aux=True), scan=scan))(*arguments)
        for scan in (lw.scan, jax.lax.scan)
    )
    np.testing.assert_allclose(ours, want, atol=1e-5 * jnp.abs(want).max())
    np.testing.assert_allclose(aux["norm"], want_aux["norm"], rtol=1e-6)


@pytest.mark.slow
def test_jacobians_and_hessians():
    w, xs = normal(N, N), normal(T, B, N)
    for transform in (jax.jacfwd, jax.jacrev, jax.hessian):
        want = transform(functools.partial(vanilla, jax.lax.scan))(w, xs)
        np.testing.assert_allclose(
            transform(functools.partial(vanilla, lw.scan))(w, xs), want, atol=1e-5 * jnp.abs(want).max()
        )


def test_outside_jit_the_same_loop_is_compiled_once():
    traces = []

    def step(h, x):
        traces.append(1)
        return jnp.tanh(h + x), None

    for i in range(3):
        lw.scan(step, jnp.zeros(N), jnp.full((T, N), float(i)))
    assert len(traces) == 1


def test_random_numbers_are_those_of_the_plain_loop():
    def draw(scan):
        keys = jax.random.split(jax.random.key(3, impl="rbg"), T)
        return scan(lambda c, key: (c, jax.random.normal(key, (N,)) @ normal(N, N)), 0, keys)[1]

    np.testing.assert_allclose(
        draw(functools.partial(lw.scan, rewrite="always")), draw(jax.lax.scan), rtol=1e-5
    )


def test_side_effects_are_kept_in_order():
    seen = []

    def step(h, x):
        jax.debug.callback(lambda x: seen.append(float(x)), x, ordered=True)
        return h + x, h

    jax.block_until_ready(lw.scan(step, 0.0, jnp.arange(4.0)))
    jax.effects_barrier()
    assert seen == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.slow
def test_sharded_inputs():
    """On eight devices, in a process of its own, since their number is fixed when jax starts."""
    code = """
    import functools
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    import lapwing as lw

    assert jax.device_count() == 8
    mesh = jax.make_mesh((8,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    w = jax.device_put(jnp.eye(4) * 0.5, NamedSharding(mesh, P()))
    xs = jax.device_put(jnp.arange(5 * 16 * 4.0).reshape(5, 16, 4) / 300, NamedSharding(mesh, P(None, "batch")))

    def loss(w, xs, scan):
        step = lambda h, x: ((new := jnp.tanh(h @ w + x)), new)
        return jnp.sum(scan(step, jnp.zeros((16, 4)), xs)[1] ** 2)

    ours, want = (jax.jit(jax.grad(functools.partial(loss, scan=s), (0, 1)))(w, xs) for s in (lw.scan, jax.lax.scan))
    np.testing.assert_allclose(ours[0], want[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], want[1], rtol=1e-5)
    assert ours[1].sharding.is_equivalent_to(want[1].sharding, 3), ours[1].sharding

    # A small loop on several devices is no kernel of one.
    small = jax.jit(lambda x: lw.scan(lambda h, _: (jnp.sin(h), None), x, length=20)[0])
    assert "xla_cpu_small_call" in small.lower(jnp.ones(16)).as_text()
    assert "xla_cpu_small_call" not in small.lower(xs[0, :, 0]).as_text()

    # Arrays on different devices are refused in the same words.
    first, second = (jax.device_put(jnp.ones((5, 3)), device) for device in jax.devices()[:2])
    def refused(scan):
        try:
            scan(lambda h, x: (h + x, None), first[0], second)
        except ValueError as error:
            return str(error)
    assert refused(lw.scan) == refused(jax.lax.scan) is not None
    """
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.optimized
def test_accelerate_a_flax_rnn():
    rnn = nnx.RNN(nnx.GRUCell(N, N, rngs=nnx.Rngs(0)))
    graph, params, rest = nnx.split(rnn, nnx.Param, ...)
    xs = normal(B, T, N)

    def loss(params, xs):
        return jnp.sum(nnx.merge(graph, params, rest)(xs, initial_carry=jnp.zeros((B, N))) ** 2)

    want = jax.grad(loss)(params, xs)
    ours = jax.jit(jax.grad(lw.accelerate(loss)))(params, xs)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(ours), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(jnp.abs(a).max(), 1e-6))
    counts = lw.explain(loss, params, xs, compiled=False).loop_products
    assert counts["after"]["in the backward loop"] < counts["before"]["in the backward loop"]


def test_accelerate_an_equinox_loop_with_static_leaves():
    cell = eqx.nn.GRUCell(N, N, key=jax.random.key(0))
    xs = normal(T, N)

    def loss(cell, xs):
        return jnp.sum(jax.lax.scan(lambda h, x: ((new := cell(x, h)), new), jnp.zeros(N), xs)[1])

    want = eqx.filter_grad(loss)(cell, xs)
    ours = eqx.filter_jit(eqx.filter_grad(lw.accelerate(loss)))(cell, xs)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(ours), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * jnp.abs(a).max())


def test_accelerate_leaves_what_is_no_array_as_it_is():
    """A function may branch on a Python number, and may return what jax does not know."""

    def decay(h, rate, names, times=3):
        def step(h, _):
            return (h * rate if rate > 0.3 else h, None)

        return {"h": jax.lax.scan(step, h, length=times)[0], "names": names, "rate": rate, "tanh": jnp.tanh}

    arguments = jnp.ones(N), 0.5, np.array(["a", "b"])
    want, ours = decay(*arguments, times=4), lw.accelerate(decay)(*arguments, times=4)
    np.testing.assert_array_equal(ours.pop("h"), want.pop("h"))
    assert ours == want | {"names": arguments[2]}
    assert type(ours["rate"]) is float


def test_what_a_loop_passes_on_is_what_jax_passes_on():
    numbers = np.arange(T)
    want, ours = (
        scan(lambda c, i: (c, (i, jnp.sin(1.0 * i))), 2, numbers) for scan in (jax.lax.scan, lw.scan)
    )
    assert jax.tree.map(type, ours) == jax.tree.map(type, want)


@pytest.mark.slow
def test_a_counter_keeps_its_weak_type_in_forward_mode():
    """Also where rows are read by it, and the counter itself leaves the loop."""

    def last(scan, start, xs):
        def step(c, _):
            return ((c[0] + 1, jnp.tanh(c[1] + xs[c[0]])), None)

        return scan(step, (start, jnp.zeros(N)), length=T)[0]

    xs = normal(T, N)
    for start in (0, jnp.int32(0), jnp.uint8(251)):
        want, ours = (
            jax.jvp(functools.partial(last, scan, start), (xs,), (xs,))[0][0]
            for scan in (jax.lax.scan, functools.partial(lw.scan, rewrite="always"))
        )
        assert jax.typeof(ours) == jax.typeof(want)
        assert int(ours) == int(want)


def test_outputs_keep_their_weak_types_in_forward_mode():
    def run(scan, rate, xs):
        def step(h, x):
            return (jnp.tanh(h * rate) + x, (rate, 2, 0.5, x))

        return scan(step, 1.0, xs)

    for rate in (0.5, jnp.float32(0.5)):
        arguments = rate, jnp.ones(T)
        want, ours = (
            jax.make_jaxpr(functools.partial(jax.jvp, functools.partial(run, scan)))(arguments, arguments)
            for scan in (jax.lax.scan, functools.partial(lw.scan, rewrite="always"))
        )
        assert ours.out_avals == want.out_avals


def test_accelerate_after_the_gradient_moves_the_sums_out():
    gradient = jax.grad(functools.partial(vanilla, jax.lax.scan))
    arguments = normal(N, N), normal(T, B, N)

    def loops(f):
        eqns = equations(jax.make_jaxpr(f)(*arguments).jaxpr)
        return [scan_counts(eqn.params)[1] for eqn in eqns if eqn.primitive.name == "scan"]

    assert loops(gradient) == [1, 2]
    assert loops(lw.accelerate(gradient, rewrite="always")) == [1, 1]


def test_a_loop_that_carries_nothing_keeps_the_memory_of_one_step():
    """`jax.lax.map` is written to save memory; making it one batch would spend it."""
    arguments = normal(N, N), normal(50, 20, N)

    def mapped(scan, w, xs):
        return scan(lambda carry, x: (carry, jnp.sum(jnp.tanh(x @ w))), None, xs)[1]

    ours, theirs = (
        str(jax.make_jaxpr(functools.partial(mapped, s))(*arguments)) for s in (lw.scan, jax.lax.scan)
    )
    assert ours == theirs


WAYS = {"lax": jax.lax.scan, "auto": lw.scan, "always": functools.partial(lw.scan, rewrite="always")}


def test_a_branch_that_is_not_taken_is_not_run():
    """One with a loop that ends only on the taken side would never end."""
    runs = []

    def seen(x):
        runs.append(float(x[0]))
        return x

    def step(w, h, x):
        def watched(x):
            x = jax.pure_callback(seen, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
            halved = jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + x[0], c[1] / 2), (0.0, x))[1]
            return halved @ w

        h = jnp.tanh(h @ w + jax.lax.cond(x[0] > 0, watched, lambda x: x @ w, x))
        read_out = jax.lax.cond(x[0] > 1, lambda h: h @ w, lambda h: h, h)
        return h, read_out

    w, xs = 0.5 * jnp.eye(3), jnp.array([[1.0, 2, 3], [-1, -2, -3], [2, 1, 1]])
    found = {}
    for name, way in WAYS.items():
        runs.clear()
        found[name] = jax.jit(lambda w, way=way: way(functools.partial(step, w), jnp.zeros(3), xs))(w)
        jax.block_until_ready(found[name])
        assert sorted(runs) == [1.0, 2.0]
    for name in ("auto", "always"):
        leaves_close(jax.tree.leaves(found["lax"]), jax.tree.leaves(found[name]), 1e-6)


def test_a_branch_that_chooses_an_integer_stays_in_its_step():
    """Such a loop is rewritten around its branches: no product leaves it that would take one along."""
    runs = []

    def seen(x):
        runs.append(float(x))
        return np.int32(x)

    def count(value):
        call = functools.partial(jax.pure_callback, seen, jax.ShapeDtypeStruct((), jnp.int32))
        return jax.lax.cond(value > 0, call, lambda value: jnp.int32(0), value)

    def step(w, h, x):
        before = (x * count(x[0])) @ w
        h = jnp.tanh(h @ w + before + x @ w)
        # The second value is only returned, and computed from a product that is only returned.
        after = h @ w
        return h, after * count(jnp.round(10 + after[0]))

    w, xs = 0.5 * jnp.eye(3), jnp.array([[1.0, 2, 3], [-1, -2, -3], [2, 1, 1]])
    found = {}
    for name, way in WAYS.items():
        runs.clear()
        gradient = jax.grad(lambda w, way=way: jnp.sum(way(functools.partial(step, w), jnp.zeros(3), xs)[1]))
        found[name] = [jax.block_until_ready(jax.jit(gradient)(w)), jnp.array(sorted(runs))]
        assert len(runs) == 5
        leaves_close(found["lax"], found[name], 1e-6)


@pytest.mark.parametrize("name", some(["auto", "always"], 1))
def test_a_branch_chosen_for_each_of_a_batch_can_be_differentiated(name):
    """Differentiated first and mapped afterwards, jax could not transpose it."""

    def loss(scan, w, xs):
        def step(h, x):
            h = jax.lax.cond(jnp.sum(h) > 0, jnp.tanh, lambda h: 0.5 * h, h @ w + x)
            return h, h

        return jnp.sum(scan(step, jnp.zeros(20), xs)[1])

    def batch(scan, w, xs):
        return jnp.sum(jax.vmap(lambda x: loss(scan, w, x))(xs))

    arguments = 0.1 * normal(20, 20), normal(3, 50, 20)
    want, found = (jax.grad(functools.partial(batch, WAYS[each]))(*arguments) for each in ("lax", name))
    leaves_close([want], [found], 1e-5)


def test_where_nothing_moves_the_derivative_is_that_of_jax():
    def loss(scan, h, xs):
        return jnp.sum(scan(lambda h, x: (jnp.tanh(h * jnp.sin(h) + x), None), h, xs)[0])

    def loops(scan):
        program = jax.make_jaxpr(jax.grad(functools.partial(loss, scan)))(jnp.ones(300), jnp.ones((T, 300)))
        steps = [eqn.params["jaxpr"].jaxpr for eqn in program.eqns if eqn.primitive.name == "scan"]
        return [(sorted(eqn.primitive.name for eqn in step.eqns), len(step.outvars)) for step in steps]

    assert len(loops(lw.scan)) == 2
    assert loops(lw.scan) == loops(jax.lax.scan)
    assert loops(functools.partial(lw.scan, rewrite="always")) != loops(jax.lax.scan)


def test_a_large_bias_enters_the_loop_as_a_constant():
    """Where a stack made only for it would not fit the cache."""

    def loss(scan, w, bias, xs):
        def step(h, x):
            return jnp.tanh(0.5 * h + bias + jnp.tile(h[:64] @ w, 32) + x), None

        return jnp.sum(scan(step, jnp.zeros(2048), xs)[0] ** 2)

    arguments = 0.1 * normal(64, 64), normal(2048), normal(8, 2048)
    want, ours = (
        jax.grad(functools.partial(loss, scan), (0, 1))(*arguments) for scan in (jax.lax.scan, lw.scan)
    )
    leaves_close(want, ours, 1e-5)


def test_accelerate_at_import_starts_no_backend():
    """After that, `jax.distributed.initialize()` would be refused."""
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    code = f"""
    import jax
    import lapwing as lw

    @lw.accelerate
    def double(x):
        return 2 * x

    jax.distributed.initialize("localhost:{port}", num_processes=1, process_id=0)
    print(double(1.0), jax.process_count())
    """
    code = textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "2.0 1\n", done.stderr
