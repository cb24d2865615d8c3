"""Loops become kernels when they are lowered for a Hopper GPU, and stay loops everywhere else."""

import warnings

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import lapwing as lw
from lapwing import jaxprs
from lapwing.loops import LoopError
from lapwing.loops._costs import platform_is
from lapwing.loops._marks import mark_of
from lapwing.loops.persistent import _device, _kernel
from tests.loops.persistent.gpu import SHAPES, B, D, T, array, count, gradient, lowered, lstm


def test_the_gradient_of_an_lstm_is_two_kernels_and_none_when_they_are_off(hopper):
    assert count(lowered(gradient, *SHAPES)) == (2, 0)
    with lw.loops.use_persistent("off"):
        assert count(lowered(gradient, *SHAPES)) == (0, 2)


@pytest.mark.slow
def test_kernels_do_not_depend_on_settings_of_the_user(hopper):
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"), jax.enable_x64(True):
        assert count(lowered(lstm, *SHAPES)) == (1, 0)


def test_vmap_folds_into_the_batch(hopper):
    many = array(T, 2, B // 2, D)
    assert count(lowered(jax.vmap(gradient, (None, None, 1)), *SHAPES[:2], many)) == (2, 0)


def test_a_loop_inside_a_branch_or_another_loop_is_a_kernel(hopper):
    def often(w, r, xs):
        total = jax.lax.fori_loop(0, 3, lambda _, total: total + lstm(w, r, xs), 0.0)
        return jax.lax.cond(total > 0, lambda: total, lambda: lstm(w, r, -xs))

    assert count(lowered(often, *SHAPES)) == (2, 1)


@pytest.mark.slow
def test_higher_derivatives_are_lowered_without_a_warning(hopper):
    def twice(w, r, xs):
        return jax.grad(lambda w: jnp.sum(jnp.sin(jax.grad(lstm)(w, r, xs))))(w)

    kernels, loops = count(lowered(twice, *SHAPES))
    assert kernels + loops >= 3


def sharded(axes: set[str]):
    mesh = AbstractMesh((2, 2), ("data", "other"), axis_types=(AxisType.Auto,) * 2)
    specs = P(), P(), P(None, "data")

    def each(w, r, xs):
        return jax.lax.psum(lstm(w, r, xs), "data")

    mapped = jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=P(), axis_names=axes, check_vma=False)
    shapes = [
        jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=NamedSharding(mesh, spec))
        for each, spec in zip(SHAPES, specs, strict=True)
    ]
    return mapped, shapes


def test_inside_a_shard_map_the_program_of_each_device_has_a_kernel(hopper):
    fn, shapes = sharded({"data", "other"})
    assert count(lowered(fn, *shapes)) == (1, 0)


def test_where_xla_divides_the_program_among_devices_it_has_none(hopper):
    fn, shapes = sharded({"data"})
    assert count(lowered(fn, *shapes)) == (0, 1)
    assert count(lowered(lstm, *shapes)) == (0, 1)


def test_what_is_exported_has_no_kernel(hopper):
    with platform_is("gpu"):
        exported = jax.export.export(jax.jit(lstm), platforms=("cuda",))(*SHAPES)
    assert count(exported.mlir_module()) == (0, 1)


def test_other_gpus_keep_their_loops():
    assert _device.device_here() is None
    assert count(lowered(lstm, *SHAPES)) == (0, 1)


@pytest.mark.parametrize(
    ("capability", "expected"), [("9.0", True), ("8.0", False), ("10.0", False), (None, False)]
)
def test_which_gpus_run_kernels(monkeypatch, capability, expected):
    class Found:
        device_kind, core_count, compute_capability = "a GPU", 78, capability

    monkeypatch.setattr(jax, "local_devices", lambda backend: [Found()])
    device = _device.device_here()
    assert (device is not None) == expected
    if device is not None:
        assert (device.kind, device.gpu.multiprocessors) == ("a GPU", 78)


def test_on_a_cpu_nothing_changes(hopper):
    weights = [np.ones(shape, np.float32) / 8 for shape in ((8, 32), (8, 32))]
    xs = np.ones((20, 2, 8), np.float32)
    text = jax.jit(lambda *args: lstm(*args, width=8)).lower(*weights, xs).as_text()
    assert count(text)[0] == 0
    found = jax.jit(lambda *args: lstm(*args, width=8))(*weights, xs)
    np.testing.assert_allclose(found, lstm(*weights, xs, jax.lax.scan, 8), rtol=1e-5)


def test_a_kernel_that_fails_leaves_a_loop_and_one_warning(hopper, monkeypatch):
    def fails(*_):
        raise NotImplementedError("no such layout\nmore")

    monkeypatch.setattr(_kernel, "run", fails)
    with pytest.warns(RuntimeWarning) as caught:
        text = lowered(gradient, *SHAPES)
    assert count(text) == (0, 2)
    assert [str(each.message) for each in caught] == [
        "a loop could not be made one GPU kernel and stays a loop (NotImplementedError: no such layout); results are "
        "unaffected, and lapwing.loops.use_persistent('off') or LAPWING_PERSISTENT=off turns persistent GPU kernels off"
    ]
    with warnings.catch_warnings(action="error"):
        assert count(lowered(lambda *args: 2 * lstm(*args), *SHAPES)) == (0, 1)


def test_a_kernel_that_cannot_be_lowered_leaves_nothing_behind(hopper, monkeypatch):
    """It is lowered by itself first: a failure halfway would leave its pieces in the program."""
    unknown = Primitive("unknown")
    unknown.def_abstract_eval(lambda aval: aval)
    run = _kernel.run

    def backward_fails(stages, plan, values):
        return [unknown.bind(out) if stages.loop.reverse else out for out in run(stages, plan, values)]

    monkeypatch.setattr(_kernel, "run", backward_fails)
    with pytest.warns(
        RuntimeWarning, match="NotImplementedError: MLIR translation rule for primitive 'unknown'"
    ):
        assert count(lowered(gradient, *SHAPES)) == (1, 1)


def test_a_jitted_function_has_a_program_for_each_mode():
    seen = []

    @jax.jit
    def last(w, xs):
        def step(h, x):
            seen.append(lw.loops._mode.mode())
            return jnp.tanh(h @ w + x), None

        return lw.scan(step, jnp.zeros((2, 3)), xs)[0]

    args = jnp.eye(3), jnp.ones((5, 2, 3))
    for mode in ("auto", "off", "auto", "off"):
        with lw.loops.use_persistent(mode):
            last(*args)
    assert set(seen) == {"auto", "off"}
    before = len(seen)
    with lw.loops.use_persistent("off"):
        last(*args)
    assert len(seen) == before


def marks(fn, *args):
    """Of the loops in a function."""
    eqns = jaxprs.equations(jax.make_jaxpr(lambda *args: fn(*args))(*args).jaxpr)
    return [mark_of(eqn.ctx) for eqn in eqns if eqn.primitive.name == "scan"]


@pytest.mark.slow
def test_a_loop_keeps_the_mode_under_which_it_was_traced(monkeypatch):
    args = [jnp.zeros(shape.shape, shape.dtype) for shape in SHAPES]
    with lw.loops.use_persistent("tune"):
        (value, back) = jax.vjp(lambda w: lstm(w, *args[1:]), args[0])
        assert marks(gradient, *args) == ["tune", "tune"]
    assert marks(back, value) == ["tune"]
    monkeypatch.setenv("LAPWING_PERSISTENT", "off")
    assert marks(lstm, *args) == ["off"]
    with lw.loops.use_persistent("auto"):
        assert marks(lstm, *args) == ["auto"]
    monkeypatch.setenv("LAPWING_PERSISTENT", "")
    assert marks(lstm, *args) == ["auto"]


def test_other_modes_are_refused(monkeypatch):
    with (
        pytest.raises(LoopError, match=r"^the mode must be 'auto', 'tune' or 'off', not 'on'$"),
        lw.loops.use_persistent("on"),
    ):
        pass
    monkeypatch.setenv("LAPWING_PERSISTENT", "1")
    with pytest.raises(LoopError, match=r"^LAPWING_PERSISTENT must be 'auto', 'tune' or 'off', not '1'$"):
        lw.loops._mode.mode()
