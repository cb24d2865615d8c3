"""Loops over layers and over updates: deep networks, inner optimizers, attacks, rollouts, samplers."""

import itertools

import jax
import jax.numpy as jnp

from lapwing.bench.loop_bodies._body import body, mean_square
from lapwing.bench.loop_bodies.recurrent import layer_norm


@body(
    "learning",
    lambda r: (
        {
            "norm": 1 + r.normal(6, 64, scale=0.1),
            "shift": r.normal(6, 64, scale=0.1),
            "to": r.weight(6, 64, 192),
            "o": r.weight(6, 64, 64),
            "up": r.weight(6, 64, 256),
            "down": r.weight(6, 256, 64),
        },
        r.normal(4, 32, 64),
    ),
)
def transformer_layers(scan, layers, x):
    """The weights of each layer are an x of the loop."""

    def step(x, w):
        parts = jnp.split(layer_norm(x, w["norm"], w["shift"]) @ w["to"], 3, -1)
        q, k, v = (part.reshape(4, 32, 4, 16) for part in parts)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ w["o"]
        return x + jax.nn.gelu(layer_norm(x, w["norm"], w["shift"]) @ w["up"]) @ w["down"], None

    return mean_square(scan(step, x, layers)[0])


@body("learning", lambda r: ((r.weight(12, 128, 128, gain=0.5), r.normal(12, 128)), r.normal(64, 128)))
def mlp_layers(scan, layers, x):
    def step(x, layer):
        w, bias = layer
        return x + jnp.maximum(x @ w + bias, 0), None

    return mean_square(scan(step, x, layers)[0])


@body("learning", lambda r: ((r.weight(12, 128, 128, gain=0.5), r.normal(12, 128)), r.normal(64, 128)))
def checkpointed_layers(scan, layers, x):
    @jax.checkpoint
    def step(x, layer):
        w, bias = layer
        return x + jax.nn.gelu(x @ w + bias) @ w.T, None

    return mean_square(scan(step, x, layers)[0])


@jax.custom_vjp
def clipped_product(x, w):
    return x @ w


clipped_product.defvjp(
    lambda x, w: (x @ w, (x, w)), lambda kept, g: (jnp.clip(g, -1, 1) @ kept[1].T, kept[0].T @ g)
)


@body("learning", lambda r: ((r.weight(128, 128), r.weight(128, 128)), r.normal(60, 16, 128)))
def custom_vjp_products(scan, w, xs):
    def step(h, x):
        h = jnp.tanh(clipped_product(x, w[0]) + clipped_product(h, w[1]))
        return h, h

    return mean_square(scan(step, jnp.zeros(xs.shape[1:]), xs)[1])


@body("learning", lambda r: ((r.weight(64, 64, gain=0.5), r.weight(64, 64)), r.normal(16, 64)))
def equilibrium(scan, w, x):
    """A deep equilibrium model by fixed-point iteration."""
    fixed = x @ w[1]
    return mean_square(
        scan(lambda z, _: (jnp.tanh(z @ w[0] + fixed), None), jnp.zeros_like(x), None, length=40)[0]
    )


def _mlp(r, *widths):
    pairs = itertools.pairwise(widths)
    return [(r.weight(into, out), r.normal(out, scale=0.1)) for into, out in pairs]


def mlp(layers, x):
    for w, bias in layers[:-1]:
        x = jnp.tanh(x @ w + bias)
    w, bias = layers[-1]
    return x @ w + bias


@body("learning", lambda r: (_mlp(r, 33, 64, 32), r.normal(32, 32), r.normal(30, 32, 32)))
def diffusion_sampler(scan, layers, x, noise):
    def step(x, now):
        t, z = now
        predicted = mlp(layers, jnp.concatenate([x, jnp.broadcast_to(t, (32, 1))], -1))
        return x + 0.05 * (predicted - t * x) + 0.05 * z, None

    times = jnp.linspace(1, 0.02, noise.shape[0])
    return mean_square(scan(step, x, (times, noise))[0])


def _regression(r, steps, batch):
    return _mlp(r, 16, 64, 1), r.normal(steps, batch, 16), r.normal(steps, batch, 1)


def _squared_error(layers, x, y):
    return jnp.mean((mlp(layers, x) - y) ** 2)


@body("learning", lambda r: _regression(r, 16, 128))
def gradient_accumulation(scan, layers, xs, ys):
    """The gradient of a large batch as the mean over microbatches, and its norm as the loss."""

    def step(total, batch):
        return jax.tree.map(jnp.add, total, jax.grad(_squared_error)(layers, *batch)), None

    zeros = jax.tree.map(jnp.zeros_like, layers)
    total, _ = scan(step, zeros, (xs, ys))
    return mean_square(*jax.tree.leaves(total))


@body("learning", lambda r: _regression(r, 16, 256))
def microbatch_losses(scan, layers, xs, ys):
    """The loss of a large batch as the sum over microbatches."""
    return scan(lambda total, batch: (total + _squared_error(layers, *batch), None), 0.0, (xs, ys))[0]


@body("learning", lambda r: _regression(r, 1, 128))
def meta_learning(scan, layers, xs, ys):
    """MAML: the loss after ten steps of gradient descent."""

    def step(layers, _):
        gradient = jax.grad(_squared_error)(layers, xs[0], ys[0])
        return jax.tree.map(lambda w, g: w - 0.05 * g, layers, gradient), None

    return _squared_error(scan(step, layers, None, length=10)[0], xs[0], ys[0])


@body("learning", lambda r: _regression(r, 30, 32))
def training_loop(scan, layers, xs, ys):
    """Adam as a loop over batches: the loss of the last weights, for the first ones."""

    def step(state, batch):
        layers, first, second, count = state
        gradient = jax.grad(_squared_error)(layers, *batch)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradient)
        rate = 0.01 * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        layers = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-3), layers, first, second)
        return (layers, first, second, count + 1), None

    zeros = jax.tree.map(jnp.zeros_like, layers)
    (layers, *_), _ = scan(step, (layers, zeros, zeros, 1.0), (xs, ys))
    return _squared_error(layers, xs[0], ys[0])


@body("learning", lambda r: (r.normal(32, 64), _mlp(r, 64, 128, 10), r.integers(10, 32)))
def pgd_attack(scan, images, layers, labels):
    """Projected gradient ascent on the inputs."""

    def loss(delta):
        logits = jax.nn.log_softmax(mlp(layers, images + delta))
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))

    def step(delta, _):
        return jnp.clip(delta + 0.02 * jnp.tanh(1e3 * jax.grad(loss)(delta)), -0.1, 0.1), None

    return loss(scan(step, jnp.zeros_like(images), None, length=10)[0])


@body("learning", lambda r: (_mlp(r, 4, 32, 1), r.normal(64, 4, scale=0.1)))
def rl_rollout(scan, policy, state):
    """A policy that balances a pole; the reward is differentiated through the simulator."""

    def step(state, _):
        force = jnp.tanh(mlp(policy, state))[:, 0]
        x, v, angle, spin = jnp.moveaxis(state, -1, 0)
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        push = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speed = push - 0.05 * turn * cos / 1.1
        after = jnp.stack([x + 0.02 * v, v + 0.02 * speed, angle + 0.02 * spin, spin + 0.02 * turn], -1)
        return after, -jnp.mean(angle**2 + 0.1 * x**2 + 0.01 * force**2)

    return -jnp.mean(scan(step, state, None, length=60)[1])


@body(
    "learning",
    lambda r: (
        r.normal(2, scale=0.1),
        r.normal(512, 64),
        r.normal(512, 1),
        r.normal(64, 1),
        r.normal(50, 64, 1),
    ),
)
def hamiltonian_monte_carlo(scan, hyper, x, y, w, momenta):
    """A trajectory of leapfrog steps with fresh momenta: gradients of the log density inside."""

    def potential(w):
        residual = (x @ w - y) * jnp.exp(hyper[0])
        return 0.5 * jnp.mean(residual**2) + 0.5 * jnp.exp(hyper[1]) * jnp.mean(w**2)

    def step(w, momentum):
        momentum = 0.1 * momentum - 0.05 * jax.grad(potential)(w)
        w = w + 0.1 * momentum
        momentum = momentum - 0.05 * jax.grad(potential)(w)
        return w, jnp.mean(momentum**2)

    w, energies = scan(step, w, momenta)
    return potential(w) + jnp.mean(energies)


@body(
    "learning",
    lambda r: ({"in": r.weight(16, 64), "out": r.weight(64, 1)}, r.normal(64, 32, 16), r.normal(64, 32)),
)
def lambda_returns(scan, w, states, rewards):
    """The returns of TD(λ), from the last step back, with a critic inside the loop."""

    def value(state):
        return (jnp.tanh(state @ w["in"]) @ w["out"])[:, 0]

    def step(carry, now):
        after, later = carry
        state, reward = now
        here = value(state)
        target = reward + 0.99 * (0.05 * later + 0.95 * after)
        return (target, here), jnp.mean((here - jax.lax.stop_gradient(target)) ** 2)

    last = value(states[-1])
    return jnp.mean(scan(step, (last, last), (states, rewards), reverse=True)[1])
