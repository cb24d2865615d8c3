"""The gradient of a loop, faster: a GRU with `jax.lax.scan`, accelerated as it is, and what was done to it."""

import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw

BATCH, STEPS, WIDTH = 2, 200, 256


def loss(params, xs):
    def step(h, x):
        xr, xz, xn = jnp.split(x @ params["in"], 3, axis=-1)
        r = jax.nn.sigmoid(xr + h @ params["u"])
        z = jax.nn.sigmoid(xz + h @ params["v"])
        n = jnp.tanh(xn + (r * h) @ params["w"])
        h = (1 - z) * h + z * n
        return h, h

    _, hs = jax.lax.scan(step, jnp.zeros((BATCH, WIDTH)), xs)
    return jnp.mean(hs**2)


def example():
    """What to explain: `lapwing explain 03_faster_gradients.py:example --picture loop.png` draws it."""
    *keys, of_xs = jax.random.split(jax.random.key(0), 5)
    shapes = {"u": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "w": (WIDTH, WIDTH), "in": (8, 3 * WIDTH)}
    params = {
        name: jax.random.normal(key, shape) / WIDTH**0.5
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return loss, (params, jax.random.normal(of_xs, (STEPS, BATCH, 8)))


if __name__ == "__main__":
    _, (params, xs) = example()
    plain = jax.jit(jax.grad(loss))
    faster = jax.jit(jax.grad(lw.accelerate(loss)))

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain(params, xs), faster(params, xs)
    )
    print("Both gradients are the same. What was moved, and what had to stay:\n")
    print(lw.explain(loss, params, xs))

    # In turns, so that whatever else the machine does slows both.
    laps = lw.Laps(sync=jax.block_until_ready)
    for _ in range(20):
        with laps("jax.lax.scan") as phase:
            phase.wait_for(plain(params, xs))
        with laps("accelerated") as phase:
            phase.wait_for(faster(params, xs))
        laps.step()
    print(f"\n{laps.summary()}")
