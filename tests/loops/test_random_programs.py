"""Random loops: products, gates, slices, reductions, shared weights. `scan` against `jax.lax.scan`, in float64."""

import functools
import operator

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapwing.loops import scan
from tests.loops import step_by_step
from tests.loops.reference import leaves_close

B, T, N = 2, 3, 2
WEIGHTS, BIASES, CARRIES, XS = 3, 2, 2, 2

UNARY = {
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "square": lambda v: 0.5 * v * v,
    "mean": lambda v: jnp.broadcast_to(v.mean(-1, keepdims=True), v.shape),
    "centre": lambda v: v - v.mean(0),
    "swap": lambda v: jnp.concatenate([v[:, 1:], v[:, :1]], 1),
    "flip": lambda v: v[::-1],
    "negate": operator.neg,
}
BINARY = {
    "add": operator.add,
    "mul": operator.mul,
    "sub": operator.sub,
    "where": lambda a, b: jnp.where(a > b, a, b),
}
WEIGHTED = {
    "product": lambda v, w: v @ w,
    "transposed": lambda v, w: v @ w.T,
    "from the left": lambda v, w: (w @ v.T).T,
    "sliced": lambda v, w: v @ jnp.concatenate([w[:1], w[1:] * 2]),
    "scaled": lambda v, w: v * w[0],
    "einsum": lambda v, w: jnp.einsum("bi,ij->bj", v, jnp.tanh(w)),
}

instruction = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.sampled_from(sorted(WEIGHTED)), st.integers(0, 9), st.integers(0, WEIGHTS - 1)),
    st.tuples(st.just("bias"), st.integers(0, 9), st.integers(0, BIASES - 1)),
)
program = st.lists(instruction, min_size=2, max_size=9)


def run_program(how, code, reverse, params):
    def step(carry, x):
        # The newest values first: an index far back reaches the carry and x.
        values = [*x, *carry]
        for name, *arguments in code:
            operand = values[-1 - arguments[0] % len(values)]
            if name in UNARY:
                values.append(UNARY[name](operand))
            elif name in BINARY:
                values.append(BINARY[name](operand, values[-1 - arguments[1] % len(values)]))
            elif name in WEIGHTED:
                values.append(WEIGHTED[name](operand, params["weights"][arguments[1]]))
            else:
                values.append(operand + params["biases"][arguments[1]])
        return [jnp.tanh(values[-1]), 0.5 * values[-2]], (values[-1], values[len(values) // 2])

    return how(step, params["init"], params["xs"], reverse=reverse)


def parameters():
    keys = iter(jax.random.split(jax.random.key(0), 20))

    def draw(*shape):
        return 0.7 * jax.random.normal(next(keys), shape, jnp.float64)

    return {
        "weights": [draw(N, N) for _ in range(WEIGHTS)],
        "biases": [draw(N) for _ in range(BIASES)],
        "init": [draw(B, N) for _ in range(CARRIES)],
        "xs": [draw(T, B, N) for _ in range(XS)],
    }


def gradients(how, code, reverse):
    def loss(params):
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(run_program(how, code, reverse, params)))

    params = parameters()
    closed = jax.make_jaxpr(jax.value_and_grad(loss))(params)
    return step_by_step.run(closed, *jax.tree.leaves(params))


@pytest.mark.parametrize(
    "programs", [pytest.param(8, id="some"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
def test_random_programs(programs):
    @settings(max_examples=programs, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(code=program, reverse=st.booleans(), rewrite=st.sampled_from(["auto", "always"]))
    def agree(code, reverse, rewrite):
        with jax.enable_x64(True):
            want = gradients(jax.lax.scan, code, reverse)
            leaves_close(
                want, gradients(functools.partial(scan, rewrite=rewrite), code, reverse), 1e-12, atol=1e-3
            )

    agree()
