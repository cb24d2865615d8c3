"""In few bits `lw.scan` is more accurate than `jax.lax.scan`: what is deferred is summed in float32, at once."""

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing.bench._accuracy import reference, relative_errors
from lapwing.bench._cells import CELLS
from lapwing.bench._gru_models import MODELS
from lapwing.loops._over_time import broadcast


def errors(kind, dtype, shape, *scans):
    """Of the gradients of each scan, by the name of the weight."""
    loss, arguments = {**MODELS, **CELLS}[kind]
    weights, xs = arguments(*shape, dtype)
    wanted = reference(loss, weights, xs)
    for scan in scans:
        gradient = jax.jit(jax.value_and_grad(lambda weights, xs, scan=scan: loss(scan, weights, xs)))
        yield relative_errors(gradient(weights, xs), wanted)


# Sums of 3000 terms: in bfloat16 they stop growing at 256 times a term.
LONG = (4, 750, 12)


@pytest.mark.slow
def test_a_long_sequence_in_bfloat16_keeps_its_gradients():
    plain, ours = errors("lstm", jnp.bfloat16, LONG, jax.lax.scan, lw.scan)
    assert plain["bias"] > 0.1
    assert plain["recurrent"] > 0.1
    assert all(error < 0.005 for error in ours.values()), ours


@pytest.mark.parametrize(
    "kind",
    ["layer_norm_lstm", "gru", "oscillator"],
)
@pytest.mark.slow
def test_so_do_other_cells_with_their_gains(kind):
    (ours,) = errors(kind, jnp.bfloat16, LONG, lambda *args: lw.scan(*args, rewrite="always"))
    assert all(error < 0.015 for error in ours.values()), ours


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_gradient_of_a_broadcast_is_summed_in_float32(dtype):
    gradient = jax.grad(lambda value: jnp.sum(broadcast(value, (5000, 3)).astype(jnp.float32)))
    jaxpr = jax.make_jaxpr(gradient)(jnp.ones(3, dtype)).jaxpr
    sums = [eqn.invars[0].aval.dtype for eqn in jaxpr.eqns if eqn.primitive.name == "reduce_sum"]
    assert sums
    assert set(sums) == {jnp.dtype(jnp.float32)}


def test_a_broadcast_to_the_same_shape_is_none():
    jaxpr = jax.make_jaxpr(lambda value: broadcast(value, (4, 3)))(jnp.ones((4, 3), jnp.bfloat16))
    assert not jaxpr.eqns
