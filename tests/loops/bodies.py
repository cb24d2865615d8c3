"""Loops of every kind that `scan` must treat as `jax.lax.scan` does: one list, used by all tests of equality.

A case is a function of (scan, parameters) that returns a pytree, with the shapes of its parameters. Cases are small:
what matters is their structure. Parameters are made when they are used: importing this module does not run jax.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

B, T, N = 3, 5, 4


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    name: str
    run: Callable[..., Any]
    shapes: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        return {name: _filled(name, shape) for name, shape in self.shapes.items()}


CASES: list[Case] = []


def normal(*shape: int, seed: int = 0) -> jax.Array:
    """Normal numbers, drawn by numpy: nothing is compiled."""
    return jnp.asarray(0.5 * np.random.default_rng([seed, *shape]).standard_normal(shape), jnp.float32)


def _filled(name: str, shape: Any) -> Any:
    """An array of a shape, arrays for a tuple of shapes, or what a function returns."""
    if callable(shape):
        return shape()
    if all(isinstance(n, int) for n in shape):
        return normal(*shape, seed=zlib.crc32(name.encode()))
    return tuple(_filled(f"{name}{i}", each) for i, each in enumerate(shape))


def case(**shapes: Any):
    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(run.__name__, run, shapes))
        return run

    return add


@case(w=(N, N), xs=(T, B, N))
def vanilla(scan, w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h

    return scan(step, jnp.zeros((B, N)), xs)


@case(w=(N, N), u=(N, N), b=(N,), h=(B, N), xs=(T, B, N))
def input_projection_and_bias(scan, w, u, b, h, xs):
    return scan(lambda h, x: ((new := jnp.tanh(x @ u + h @ w + b)), new.sum()), h, xs)


@case(u=(N, N), v=(N, N), w=(N, N), h=(B, N), xs=(T, B, 3 * N))
def gru(scan, u, v, w, h, xs):
    def step(h, x):
        xr, xz, xn = jnp.split(x, 3, -1)
        r, z = jax.nn.sigmoid(xr + h @ u), jax.nn.sigmoid(xz + h @ v)
        h = (1 - z) * h + z * jnp.tanh(xn + (r * h) @ w)
        return h, h

    return scan(step, h, xs)


@case(
    wx=(N, 4 * N), wh=(N, 4 * N), b=(4 * N,), state=((B, N), (B, N)),
    xs=(T, B, N),
)  # fmt: skip
def lstm(scan, wx, wh, b, state, xs):
    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), {"h": h, "gates": (i, f)}

    return scan(step, state, xs)


@case(w=(N, N), v=(N, 7), xs=(T, B, N))
def read_out_in_the_loop(scan, w, v, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, jax.nn.log_softmax(h @ v)

    return scan(step, jnp.zeros((B, N)), xs)


@case(w=(N, N), xs=(T, N))
def weight_on_the_left(scan, w, xs):
    return scan(lambda h, x: (jnp.sin(w @ h + x), h), jnp.ones(N), xs)


@case(w=(N, N), v=(N, N), xs=(T, N))
def siblings_on_the_left(scan, w, v, xs):
    return scan(lambda h, x: (jnp.sin(w @ h) * (v @ h) + x, None), jnp.ones(N), xs)


@case(w=(N, N), v=(N, N), xs=(T, B, N))
def siblings_on_both_sides(scan, w, v, xs):
    def step(h, x):
        return jnp.sin(h @ w) + jnp.einsum("ij,bj->ib", v, h).T + x, None

    return scan(step, jnp.ones((B, N)), xs)


@case(w=(N, N), g=(N,), xs=(T, B, N))
def gains_and_norms(scan, w, g, xs):
    def step(h, x):
        z = h @ w + x
        z = g * (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-3)
        return jnp.tanh(z), jnp.max(z)

    return scan(step, jnp.ones((B, N)), xs)


@case(w=(N, N), xs=(T, B, N))
def weight_used_many_times(scan, w, xs):
    def step(h, x):
        h = jnp.tanh(h @ w + (h**2) @ w.T + x @ w) * jnp.trace(w) + w[0]
        return h, (h @ w).sum() + w.sum()

    return scan(step, jnp.zeros((B, N)), xs)


@case(w=(2 * N, 2 * N), xs=(T, B, N))
def weight_through_slices_and_casts(scan, w, xs):
    def step(h, x):
        u, v = w[:N, :N].T, jnp.concatenate([w[N:, N:], w[:N, N:]])[:N].astype(jnp.float32)
        return jnp.tanh(h @ u + x @ v.reshape(N, N)), h

    return scan(step, jnp.zeros((B, N)), xs)


@case(w=(N, N), xs=(T, B, N))
def weight_in_the_carry(scan, w, xs):
    def step(carry, x):
        h, w = carry
        return (jnp.tanh(h @ w + x), w), h

    return scan(step, (jnp.zeros((B, N)), w), xs)


@case(w=(N, N), xs=(T, B, N))
def weight_that_changes(scan, w, xs):
    def step(carry, x):
        h, w = carry
        h = jnp.tanh(h @ w + x)
        return (h, w + 0.1 * h.T @ h), h

    return scan(step, (jnp.zeros((B, N)), w), xs)


@case(w=(N, N), xs=(T, B, N))
def adds_up_products(scan, w, xs):
    def step(carry, x):
        h, total = carry
        h = jnp.tanh(h @ w + x)
        return (h, total + (x.T @ h).T), None

    return scan(step, (jnp.zeros((B, N)), jnp.ones((N, N))), xs)


@case(k=(3, 2, 2), xs=(T, 2, 8, 2))
def convolution(scan, k, xs):
    def step(h, x):
        y = jax.lax.conv_general_dilated(h, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
        return jnp.tanh(y + x), y.sum()

    return scan(step, jnp.zeros((2, 8, 2)), xs)


@case(w=(N, N), xs=(T, N))
def concatenated_input(scan, w, xs):
    wide = jnp.concatenate([w, w])

    def step(h, x):
        h = jnp.tanh(jnp.concatenate([x, h]) @ wide)
        return h, h

    return scan(step, jnp.zeros(N), xs)


@case(w=(2 * N + 3, N), e=(3,), h=(B, N), xs=(T, B, N))
def concatenated_input_and_constant(scan, w, e, h, xs):
    def step(h, x):
        e_for_all = jnp.broadcast_to(e, (B, 3))
        h = jnp.tanh(jnp.concatenate([h, x, e_for_all], -1) @ w)
        return h, h

    return scan(step, h, xs)


@case(w=(N, N), h=(B, N), xs=(T + 1, B, N), batch_first=(B, T, N))
def counter_in_the_carry(scan, w, h, xs, batch_first):
    """Reads rows by their number, in several orders, and writes results to a carry."""

    def step(carry, _):
        h, i, hs, columns = carry
        x = xs[i] @ w + jax.lax.dynamic_index_in_dim(batch_first, T - 1 - i, 1, keepdims=False) @ w
        h = jnp.tanh(h @ w + x + xs[i + 1] + jnp.take(xs, i, axis=0) * i)
        columns = jax.lax.dynamic_update_index_in_dim(columns, h[:, 0], T - i, 1)
        return (h, i + 1, hs.at[i].set(h @ w), columns), None

    return scan(step, (h, 0, jnp.zeros((T, B, N)), jnp.ones((B, T + 2))), None, length=T)[0]


@case(w=(N, N), xs=(T, N))
def relu_and_where(scan, w, xs):
    def step(h, x):
        h = jax.nn.relu(h @ w + x) + jnp.where(h > 0, h, 0.1 * x)
        return h, jax.nn.softplus(h)

    return scan(step, jnp.ones(N), xs)


@jax.custom_vjp
def doubled_gradient(x, w):
    return jnp.sin(x @ w)


doubled_gradient.defvjp(
    lambda x, w: (jnp.sin(x @ w), (x, w)),
    lambda kept, g: (2 * g @ kept[1].T, 2 * jnp.outer(kept[0], g)),
)


@case(w=(N, N), xs=(T, N))
def custom_vjp_inside(scan, w, xs):
    return scan(lambda h, x: (doubled_gradient(h, w) + x @ w, h), jnp.ones(N), xs)


@jax.custom_jvp
def stretched_tangent(x, w):
    return jnp.sin(x @ w)


@stretched_tangent.defjvp
def _(primals, tangents):
    x, w = primals
    dx, dw = tangents
    return stretched_tangent(x, w), 1.5 * (dx @ w + x @ dw)


@case(w=(N, N), xs=(T, N))
def custom_jvp_inside(scan, w, xs):
    return scan(lambda h, x: (stretched_tangent(h, w) + x, h), jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def remat_inside(scan, w, xs):
    layer = jax.checkpoint(lambda h, x: jnp.tanh(jnp.tanh(h @ w) @ w + x))
    return scan(lambda h, x: (layer(h, x), None), jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def cond_inside(scan, w, xs):
    def step(h, x):
        h = jax.lax.cond(x[0] > 0, lambda h: jnp.tanh(h @ w), lambda h: h - x, h)
        return h, h

    return scan(step, jnp.ones(N), xs)


@case(w=(N, N), xs=(T, 3, N))
def scan_inside(scan, w, xs):
    def step(h, x):
        h, _ = scan(lambda h, y: (jnp.tanh(h @ w + y), None), h, x)
        return h, h

    return scan(step, jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def while_inside(scan, w, xs):
    def step(h, x):
        n = jax.lax.while_loop(lambda i: i * i < 10, lambda i: i + 1, 0)
        return jnp.tanh(h @ w + x) * n, n

    return scan(step, jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def integers_and_booleans(scan, w, xs):
    def step(carry, x):
        h, count, odd = carry
        h = jnp.where(odd, jnp.tanh(h @ w + x), h + count)
        return (h, count + 1, ~odd), (count, h, odd)

    return scan(step, (jnp.ones(N), 0, False), (xs))


@case(w=(N, N))
def random_keys(scan, w):
    def step(carry, key):
        h, own = carry
        own, draw = jax.random.split(own)
        x = jax.random.normal(key, (N,)) @ w
        keep = jax.random.bernoulli(draw, 0.5, (N,))
        return (jnp.tanh(h @ w + x) * keep, own), x

    keys = jax.random.split(jax.random.key(1), T)
    (h, _), xs = scan(step, (jnp.ones(N), jax.random.key(2)), keys)
    return h, xs


@case(w=(N, N))
def length_only(scan, w):
    return scan(lambda h, _: (jnp.tanh(h @ w), None), jnp.ones((B, N)), None, length=T)


@case(w=(N, N), xs=(T, N))
def backwards_and_unrolled(scan, w, xs):
    return scan(lambda h, x: (jnp.tanh(h @ w + x), h), jnp.ones(N), xs, reverse=True, unroll=2)


@case(w=(N, N), xs=(1, N))
def one_step(scan, w, xs):
    return scan(lambda h, x: (jnp.tanh(h @ w + x), h), jnp.ones(N), xs)


@case(w=(N, N), h=(N,))
def no_step(scan, w, h):
    return scan(lambda h, x: (jnp.tanh(h @ w + x), h), h, jnp.zeros((0, N)))


@case(w=(N, N), xs=(T, N))
def none_and_empty_leaves(scan, w, xs):
    def step(carry, x):
        h = jnp.tanh(carry["h"] @ w + x["a"])
        return {"h": h, "nothing": None, "empty": ()}, {"y": h, "none": None}

    return scan(step, {"h": jnp.ones(N), "nothing": None, "empty": ()}, {"a": xs, "b": None})


@case(a=(N,), xs=(T, N))
def no_products(scan, a, xs):
    return scan(lambda h, x: (a * h + x, h), jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def stopped_gradient(scan, w, xs):
    def step(h, x):
        h = jax.lax.stop_gradient(h) @ w + jnp.sin(h) + x
        return h, jax.lax.stop_gradient(h)

    return scan(step, jnp.ones(N), xs)


@case(w=(N, N), xs=(T, N))
def constant_and_passed_through_outputs(scan, w, xs):
    def step(carry, x):
        h, last = carry
        h = jnp.tanh(h @ w + x)
        return (h, x), (x, last, 1.0, w[0], jnp.arange(3), h)

    return scan(step, (jnp.ones(N), jnp.zeros(N)), xs)


@case(w=(N, N), xs=(T, N))
def python_scalar_carry(scan, w, xs):
    return scan(lambda s, x: (s + jnp.sum(x @ w), s), 0.0, xs)


@case(w=(N, N), c=(2, 3), xs=(T, 2, 3, N))
def more_axes_and_einsum(scan, w, c, xs):
    def step(h, x):
        h = jnp.einsum("ijk,kl->ijl", h, w) + jnp.einsum("ij,ijk->ijk", c, x)
        return jnp.tanh(h), jnp.einsum("ijk,ijk->ij", h, h)

    return scan(step, jnp.zeros((2, 3, N)), xs)


@case(w=(N, N), table=(6, N), ids=lambda: jnp.arange(T) % 6)
def embedding_lookup(scan, w, table, ids):
    return scan(lambda h, i: (jnp.tanh(h @ w + table[i]), h), jnp.ones(N), ids)


@case(cell=lambda: eqx.nn.GRUCell(N, N, key=jax.random.key(0)), xs=(T, N))
def equinox_gru(scan, cell, xs):
    def step(h, x):
        h = cell(x, h)
        return h, h

    return scan(step, jnp.zeros(N), xs)


@case(w=(N, N), v=(0, N), xs=(T, B, 0))
def inputs_of_width_zero(scan, w, v, xs):
    """As a state-space model without inputs has them."""

    def step(h, x):
        h = jnp.tanh(h @ w + x @ v)
        return h, x @ v

    return scan(step, jnp.ones((B, N)), xs)
