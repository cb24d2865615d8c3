"""Linear algebra, filters, running statistics, and bodies with control flow of their own."""

import jax
import jax.numpy as jnp

from lapwing.bench.loop_bodies._body import body, mean_square


@body("numerics", lambda r: (r.weight(3, 3, gain=0.6), r.normal(10_000, 3, 3, scale=0.1)), x64=True)
def matrices_3x3(scan, w, xs):
    def step(m, x):
        m = w @ m + x
        return m, None

    return mean_square(scan(step, jnp.eye(3), xs)[0])


@body("numerics", lambda r: (r.uniform(5, low=-0.2, high=0.2), r.normal(10_000)))
def iir_filter(scan, w, xs):
    """A biquad, in its direct form."""

    def step(carry, x):
        x1, x2, y1, y2 = carry
        y = w[0] * x + w[1] * x1 + w[2] * x2 - w[3] * y1 - w[4] * y2
        return (x, x1, y, y1), y

    return mean_square(scan(step, (0.0, 0.0, 0.0, 0.0), xs)[1])


@body("numerics", lambda r: (r.normal(1), r.normal(500, 64)))
def moving_average(scan, w, xs):
    decay = jax.nn.sigmoid(w[0])

    def step(mean, x):
        mean = decay * mean + (1 - decay) * x
        return mean, mean

    return mean_square(scan(step, jnp.zeros(64), xs)[1])


@body("numerics", lambda r: (r.normal(1000, 64),))
def welford(scan, xs):
    """Mean and variance in one pass."""

    def step(carry, x):
        count, mean, squares = carry
        offset = x - mean
        mean = mean + offset / (count + 1)
        return (count + 1, mean, squares + offset * (x - mean)), None

    (count, _, squares), _ = scan(step, (0.0, jnp.zeros(64), jnp.zeros(64)), xs)
    return jnp.mean(squares / count)


@body("numerics", lambda r: ((r.weight(64, 64), r.weight(64, 64)), r.normal(60, 16, 64)))
def running_norm(scan, w, xs):
    """A layer that normalizes by running statistics kept in the carry."""

    def step(carry, x):
        mean, square = carry
        y = x @ w[0]
        mean = 0.95 * mean + 0.05 * jnp.mean(y, 0)
        square = 0.95 * square + 0.05 * jnp.mean(y * y, 0)
        y = (y - mean) * jax.lax.rsqrt(jnp.maximum(square - mean**2, 0.1))
        return (mean, square), jnp.maximum(y, 0) @ w[1]

    return mean_square(scan(step, (jnp.zeros(64), jnp.ones(64)), xs)[1])


@body("numerics", lambda r: (r.weight(128, 128), r.normal(128)))
def power_iteration(scan, a, v):
    def step(v, _):
        v = a @ v
        return v / jnp.linalg.norm(v), None

    v, _ = scan(step, v, None, length=60)
    return v @ a @ v


def _spd(r, size):
    a = r.weight(size, size)
    return a @ a.T + 2 * jnp.eye(size)


@body("numerics", lambda r: (_spd(r, 256), r.normal(256)))
def conjugate_gradient(scan, a, b):
    def step(carry, _):
        x, residual, direction, square = carry
        moved = a @ direction
        rate = square / (direction @ moved)
        x, residual = x + rate * direction, residual - rate * moved
        new = residual @ residual
        return (x, residual, residual + new / square * direction, new), None

    x = scan(step, (jnp.zeros(256), b, b, b @ b), None, length=8)[0][0]
    return mean_square(x)


@body("numerics", lambda r: (_spd(r, 64), r.normal(64)))
def gauss_seidel(scan, a, b):
    """Sweeps over the rows, each of which updates one entry."""

    def sweep(x, _):
        def row(x, i):
            return x.at[i].add((b[i] - a[i] @ x) / a[i, i]), None

        return scan(row, x, jnp.arange(64))[0], None

    return mean_square(scan(sweep, jnp.zeros(64), None, length=5)[0])


@body("numerics", lambda r: ((r.weight(64, 64), r.weight(64, 64)), r.normal(60, 16, 64), r.integers(2, 60)))
def cond_on_x(scan, w, xs, flags):
    """A branch that the data chooses: the one with the products is taken half of the time."""

    def step(h, now):
        x, flag = now
        h = jax.lax.cond(flag > 0, lambda: jnp.tanh(x @ w[0] + h @ w[1]), lambda: 0.9 * h + 0.1 * x)
        return h, h

    return mean_square(scan(step, jnp.zeros((16, 64)), (xs, flags))[1])


@body(
    "numerics", lambda r: ((r.weight(128, 128), r.weight(128, 128)), r.normal(40, 16, 128), r.integers(4, 40))
)
def cond_skips_products(scan, w, xs, flags):
    """A branch on x alone, rarely taken."""

    def step(h, now):
        x, flag = now
        new = jax.lax.cond(flag == 0, lambda: jax.nn.gelu(x @ w[0]) @ w[1], lambda: jnp.zeros_like(x))
        h = 0.9 * h + new
        return h, h

    return mean_square(scan(step, jnp.zeros((16, 128)), (xs, flags))[1])


@body(
    "numerics",
    lambda r: (
        {"body": {"w": r.weight(48, 48), "u": r.weight(48, 48)}, "head": (r.weight(48, 8), r.normal(8))},
        {"image": r.normal(50, 8, 48), "reward": r.normal(50, 8)},
    ),
)
def tree_carry(scan, w, xs):
    """Nested dictionaries in the carry and in the xs, as agents have them."""

    def step(carry, x):
        h = jnp.tanh(x["image"] @ w["body"]["w"] + carry["core"]["h"] @ w["body"]["u"])
        value = h @ w["head"][0] + w["head"][1]
        mean = 0.99 * carry["stats"]["mean"] + 0.01 * jnp.mean(x["reward"])
        carry = {"core": {"h": h}, "stats": {"mean": mean, "count": carry["stats"]["count"] + 1}}
        return carry, {"value": value, "advantage": x["reward"] - mean}

    init = {"core": {"h": jnp.zeros((8, 48))}, "stats": {"mean": 0.0, "count": 0}}
    _, ys = scan(step, init, xs)
    return mean_square(ys["value"], ys["advantage"])


@body("numerics", lambda r: ((r.weight(32, 32), r.weight(32, 32)), r.normal(12, 10, 8, 32)))
def nested_rnn(scan, w, xs):
    """Words within sentences: the inner loop's last state is the outer loop's input."""

    def sentence(h, words):
        inner, _ = scan(lambda s, x: (jnp.tanh(x + s @ w[0]), None), jnp.zeros((8, 32)), words)
        h = jnp.tanh(inner + h @ w[1])
        return h, h

    return mean_square(scan(sentence, jnp.zeros((8, 32)), xs)[1])


@body("numerics", lambda r: ((r.weight(48, 48), r.weight(48, 48)), r.normal(16, 60, 48)))
def vmapped_rnn(scan, w, xs):
    """A loop for one sequence, batched by `vmap`."""

    def one(xs):
        return scan(lambda h, x: (jnp.tanh(x @ w[0] + h @ w[1]),) * 2, jnp.zeros(48), xs)[1]

    return mean_square(jax.vmap(one)(xs))
