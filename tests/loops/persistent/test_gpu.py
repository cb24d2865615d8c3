"""Kernels on a Hopper GPU: the numbers of `jax.lax.scan`, and the same bits every time (a race would move them).

Run with `python -m pytest --noconftest -o addopts="" tests/loops/persistent/test_gpu.py` where the tools of the command
line are not installed.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import primitives as p

import lapwing as lw
from lapwing import jaxprs
from lapwing.bench.loop_bodies import TABLE
from lapwing.loops.persistent import _device
from lapwing.loops.persistent._axes import DoesNotFitError
from lapwing.loops.persistent._plan import Gpu, plans
from lapwing.loops.persistent._prepare import prepare
from lapwing.loops.persistent._shares import Shares

if _device.device_here() is not None:
    os.environ.setdefault("LAPWING_CELL_SIZES", "20,60,96,5")
from tests.loops.persistent.cells import CELLS, Cell

pytestmark = pytest.mark.skipif(_device.device_here() is None, reason="no Hopper GPU here")
REPETITIONS = int(os.environ.get("LAPWING_REPETITIONS", "100"))
Kind = Callable[[Shares], bool]
KINDS: dict[str, Kind] = {
    "near": lambda plan: plan.near,
    "far": lambda plan: not plan.near and plan.split == 1,
    "split": lambda plan: plan.split > 1,
    "groups": lambda plan: plan.groups > 1,
    "ring": lambda plan: plan.buffers > 0,
}


def by_kernels(fn: Callable[..., Any], kind: Kind, used: list[Shares]) -> Callable[..., Any]:
    """The same function, each of its loops a kernel with a plan of this kind."""

    def rule(eqn: Any, inputs: Sequence[Any]) -> list[Any] | None:
        if eqn.primitive is not p.scan_p:
            return None
        from lapwing.loops.persistent import _kernel

        loop, closed_over = jaxprs.loop_of(eqn)
        try:
            prepared = prepare(loop)
        except DoesNotFitError:
            return None
        plan = next((plan for plan in plans(prepared.stages, Gpu()) if kind(plan)), None)
        if plan is None:
            return None
        used.append(plan)
        values = [jnp.asarray(value) for value in [*closed_over, *inputs]]
        return prepared.run(lambda values: _kernel.run(prepared.stages, plan, values), values)

    def run(*args: Any) -> Any:
        closed = jax.make_jaxpr(fn)(*args)
        values = [*closed.consts, *jax.tree.leaves(args)]
        out = jaxprs.interpret(closed.jaxpr, values, jaxprs.open_calls(rule))
        return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(fn, *args)), out)

    return run


def error_of(found: Any, exact: Any) -> float:
    """The largest, in units of the largest number."""
    found, exact = (np.asarray(each, np.float32) for each in (found, exact))
    return float(np.abs(found - exact).max() / (np.abs(exact).max() + 1e-6))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_kernel_has_the_numbers_of_the_loop_every_time(cell: Cell, kind: str, dtype: Any):
    used: list[Shares] = []
    scan = functools.partial(lw.scan, rewrite="always")
    weights = cell.weights(dtype)
    program = jax.jit(
        by_kernels(jax.value_and_grad(lambda weights: cell.loss(scan, **weights)), KINDS[kind], used)
    )
    first = jax.device_get(program(weights))
    if not used:
        pytest.skip(f"there is no plan of the kind {kind}")
    exact = {name: value.astype(jnp.float32) for name, value in weights.items()}
    plain = jax.jit(jax.value_and_grad(lambda weights: cell.loss(jax.lax.scan, **weights)))
    with jax.default_matmul_precision("highest"):
        want = plain(exact)
    enough = 0.01 if dtype == jnp.float32 else 0.03
    for a, b, theirs in zip(*map(jax.tree.leaves, (first, want, plain(weights))), strict=True):
        assert error_of(a, b) < max(enough, 2 * error_of(theirs, b)), a.shape
    check_same_bits(program, (weights,), first)


def check_same_bits(program: Callable[..., Any], args: tuple[Any, ...], first: Any) -> None:
    for _ in range(REPETITIONS):
        again = jax.device_get(program(*args))
        for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(first), strict=True):
            np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


@pytest.mark.parametrize("name", TABLE)
def test_a_loop_that_people_write_has_its_numbers_every_time(name: str):
    body, used = TABLE[name], []

    def gradient(scan: Any) -> Callable[..., Any]:
        def of_first(first: Any, *rest: Any) -> Any:
            return jax.value_and_grad(lambda first: body.loss(scan, first, *rest), allow_int=True)(first)

        return of_first

    with jax.enable_x64(body.x64):
        given = body.arguments()
        program = jax.jit(by_kernels(gradient(lw.scan), lambda plan: True, used))
        first = jax.device_get(program(*given))
        if not used:
            pytest.skip("none of its loops is a kernel")
        with jax.default_matmul_precision("highest"):
            want = jax.jit(gradient(jax.lax.scan))(*given)
        theirs = jax.jit(gradient(jax.lax.scan))(*given)
        for a, b, c in zip(*map(jax.tree.leaves, (first, want, theirs)), strict=True):
            if jnp.issubdtype(b.dtype, jnp.floating):
                assert error_of(a, b) < max(0.01, 2 * error_of(c, b)), a.shape
        check_same_bits(program, given, first)


def test_independent_loops_in_one_program_do_not_wait_for_each_other():
    """Both directions of a bidirectional network, wide enough that two kernels do not fit at once."""
    key, width = jax.random.key(0), 1024
    w = (jax.random.normal(key, (width, width)) / width**0.5).astype(jnp.bfloat16)
    xs = jax.random.normal(key, (64, 16, width)).astype(jnp.bfloat16)

    def loss(scan: Any, w: jax.Array, xs: jax.Array) -> jax.Array:
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        zero = jnp.zeros(xs.shape[1:], xs.dtype)
        both = [scan(step, zero, xs, reverse=reverse)[1] for reverse in (False, True)]
        return sum(jnp.sum(each.astype(jnp.float32) ** 2) for each in both)

    program = jax.jit(jax.value_and_grad(functools.partial(loss, lw.scan), (0, 1)))
    assert "mosaic" in program.lower(w, xs).as_text()
    first = jax.device_get(program(w, xs))
    for _ in range(REPETITIONS):
        again = jax.device_get(program(w, xs))
        np.testing.assert_array_equal(again[0], first[0])
