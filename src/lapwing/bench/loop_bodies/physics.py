"""Simulators: neurons, bodies, fields, populations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.loop_bodies._body import body, mean_square


def _rates(v):
    """The opening and closing rates of Hodgkin and Huxley's three gates."""
    return (
        (0.1 * _exprel(-(v + 40) / 10) * 10, 4 * jnp.exp(-(v + 65) / 18)),
        (0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10))),
        (0.01 * _exprel(-(v + 55) / 10) * 10, 0.125 * jnp.exp(-(v + 65) / 80)),
    )


def _exprel(x):
    small = jnp.abs(x) < 1e-4
    return jnp.where(small, 1 - x / 2, x / jnp.expm1(jnp.where(small, 1.0, x)))


def hodgkin_huxley(scan, w, currents):
    """Compartments in a row, with sodium, potassium and leak channels; exponential Euler for the gates."""

    def step(carry, current):
        v, gates = carry
        new = []
        for gate, (opening, closing) in zip(gates, _rates(v), strict=True):
            decay = jnp.exp(-0.025 * (opening + closing))
            new.append(decay * gate + (1 - decay) * opening / (opening + closing))
        m, h, n = new
        left = jnp.concatenate([v[:1], v[:-1]])
        right = jnp.concatenate([v[1:], v[-1:]])
        ions = w["na"] * m**3 * h * (v - 50) + w["k"] * n**4 * (v + 77) + w["leak"] * (v + 54.4)
        v = v + 0.025 * (-ions + w["axial"] * (left - 2 * v + right)).at[0].add(current)
        return (v, tuple(new)), v[-1]

    size = w["na"].shape[0]
    init = (jnp.full(size, -65.0), tuple(jnp.full(size, value) for value in (0.05, 0.6, 0.32)))
    return mean_square(scan(step, init, currents)[1] / 100)


def _cable(size, steps):
    def draw(r):
        conductances = {"na": 120.0, "k": 36.0, "leak": 0.3, "axial": 1.0}
        w = {name: g * r.uniform(size, low=0.9, high=1.1) for name, g in conductances.items()}
        return w, 10 * r.uniform(steps)

    return draw


body("physics", _cable(12, 800))(hodgkin_huxley)


@body("physics", _cable(5, 5000), x64=True)
def hodgkin_huxley_64(scan, w, currents):
    return hodgkin_huxley(scan, w, currents)


@body("physics", lambda r: ([np.asarray(x) for x in r.uniform(60, low=0.1, high=0.9)],))
def sixty_scalars(scan, start):
    """Scalars in the carry, as simulators that keep each state under its own name have them."""

    def step(values, _):
        around = values[1:] + values[:1]
        after = [0.99 * v + 0.01 * jnp.sin(other) for v, other in zip(values, around, strict=True)]
        return after, after[0]

    return mean_square(scan(step, start, None, length=614)[1])


def _layers(r, *widths):
    return [r.weight(into, out) for into, out in itertools.pairwise(widths)]


@body("physics", lambda r: (_layers(r, 8, 64, 64, 8), r.normal(16, 8)))
def neural_ode(scan, layers, y):
    """Runge–Kutta of fourth order."""

    def slope(y):
        for w in layers[:-1]:
            y = jnp.tanh(y @ w)
        return y @ layers[-1]

    def step(y, _):
        a = slope(y)
        b = slope(y + 0.05 * a)
        c = slope(y + 0.05 * b)
        d = slope(y + 0.1 * c)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + d), None

    return mean_square(scan(step, y, None, length=20)[0])


@body("physics", lambda r: ((r.normal(16, 3), r.normal(16, 3, scale=0.1)), r.uniform(16, low=0.5, high=1.5)))
def n_body(scan, start, masses):
    """Leapfrog, with softened gravity between all pairs."""

    def pull(x):
        offset = x[None] - x[:, None]
        distance = jnp.sum(offset**2, -1) + 0.1
        return jnp.einsum("ijd,ij,j->id", offset, distance**-1.5, masses)

    def step(carry, _):
        x, v = carry
        v = v + 0.005 * pull(x)
        x = x + 0.01 * v
        return (x, v + 0.005 * pull(x)), None

    return mean_square(*scan(step, start, None, length=60)[0])


@body("physics", lambda r: (r.uniform(3, low=0.5, high=1.5), r.normal(32), r.normal(400)))
def pendulum(scan, constants, start, torques):
    length, mass, friction = constants

    def step(carry, torque):
        angle, speed = carry
        speed = speed + 0.01 * (torque / mass - 9.8 / length * jnp.sin(angle) - friction * speed)
        return (angle + 0.01 * speed, speed), angle

    return mean_square(scan(step, (start, jnp.zeros(32)), torques)[1])


def _laplacian(x):
    return jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x


@body("physics", lambda r: (r.uniform(4, low=0.9, high=1.1), r.uniform(48, 48, high=0.3)))
def reaction_diffusion(scan, rates, start):
    """Gray and Scott's equations on a grid."""
    du, dv, feed, kill = rates * jnp.array([0.16, 0.08, 0.035, 0.065])

    def step(carry, _):
        u, v = carry
        react = u * v * v
        return (
            u + du * _laplacian(u) - react + feed * (1 - u),
            v + dv * _laplacian(v) + react - (feed + kill) * v,
        ), None

    return mean_square(*scan(step, (jnp.ones((48, 48)), start), None, length=40)[0])


@body(
    "physics",
    lambda r: (
        {"perceive": r.normal(3, 3, 8, 24, scale=0.1), "out": r.weight(24, 8, gain=0.1)},
        r.normal(1, 24, 24, 8),
    ),
)
def cellular_automaton(scan, w, grid):
    def step(grid, _):
        seen = jax.lax.conv_general_dilated(
            grid, w["perceive"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return grid + jnp.maximum(seen, 0) @ w["out"], None

    return mean_square(scan(step, grid, None, length=8)[0])


@body("physics", lambda r: (np.array([10.0, 28.0, 8 / 3]), r.normal(64, 3)))
def lorenz(scan, constants, start):
    def step(state, _):
        x, y, z = jnp.moveaxis(state, -1, 0)
        slope = jnp.stack([constants[0] * (y - x), x * (constants[1] - z) - y, x * y - constants[2] * z], -1)
        state = state + 0.002 * slope
        return state, state

    return mean_square(scan(step, start, None, length=300)[1])


@body(
    "physics", lambda r: ({"growth": r.uniform(12), "pairs": r.normal(12, 12, scale=0.1)}, r.uniform(8, 12))
)
def populations(scan, w, start):
    """Lotka and Volterra's equations for twelve species."""

    def step(n, _):
        n = n * jnp.exp(0.02 * (w["growth"] - n + n @ w["pairs"]))
        return n, n

    return mean_square(scan(step, start, None, length=300)[1])


@jax.custom_jvp
def spike(v):
    return (v > 0).astype(v.dtype)


@spike.defjvp
def _spike_jvp(primals, tangents):
    (v,), (dv,) = primals, tangents
    return spike(v), dv / (1 + 10 * jnp.abs(v)) ** 2


@body(
    "physics",
    lambda r: (
        {"in": r.weight(40, 100, gain=3), "state": r.weight(100, 100), "out": r.weight(100, 4)},
        r.uniform(100, 8, 40),
    ),
)
def spiking_network(scan, w, xs):
    """Leaky integrate-and-fire neurons with a surrogate gradient."""

    def step(carry, x):
        v, fired = carry
        v = 0.9 * v * (1 - fired) + 0.3 * ((x > 0.8) @ w["in"] + fired @ w["state"])
        fired = spike(v - 1)
        return (v, fired), fired @ w["out"]

    zeros = jnp.zeros((8, 100))
    return mean_square(scan(step, (zeros, zeros), xs)[1])


@body("physics", lambda r: (_layers(r, 3, 32, 1), r.normal(256, 3), r.normal(256, 3)))
def ray_march(scan, layers, origins, directions):
    """Rays through a density given by a small network, with accumulated transmittance."""
    directions = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)

    def step(carry, distance):
        light, seen = carry
        density = jax.nn.softplus(jnp.tanh((origins + distance * directions) @ layers[0]) @ layers[1])[:, 0]
        passed = jnp.exp(-0.1 * density)
        return (light * passed, seen + light * (1 - passed) * distance), None

    return mean_square(scan(step, (jnp.ones(256), jnp.zeros(256)), jnp.linspace(0, 3, 32))[0][1])


@body("physics", lambda r: (np.array([1.2, 0.3, 0.1]), r.normal(16, 1), r.normal(300, 16, scale=0.1)))
def pid_controller(scan, gains, target, noise):
    target = target[:, 0]

    def step(carry, z):
        x, v, total, before = carry
        error = target - x
        force = gains[0] * error + gains[1] * total + gains[2] * (error - before) / 0.05
        v = v + 0.05 * (force - 0.5 * v + z)
        return (x + 0.05 * v, v, total + 0.05 * error, error), error

    zeros = jnp.zeros(16)
    return mean_square(scan(step, (zeros, zeros, zeros, target), noise)[1])


@body("physics", lambda r: (r.uniform(63, low=0.5, high=2.0), r.normal(8, 64, scale=0.1)))
def spring_chain(scan, stiffness, start):
    """Masses joined by springs that harden, symplectic Euler."""

    def step(carry, _):
        x, v = carry
        stretch = jnp.diff(x, axis=-1)
        force = stiffness * (stretch + stretch**3)
        push = jnp.pad(force, ((0, 0), (0, 1))) - jnp.pad(force, ((0, 0), (1, 0)))
        v = 0.999 * v + 0.02 * push
        return (x + 0.02 * v, v), jnp.mean(v**2)

    return jnp.mean(scan(step, (start, jnp.zeros_like(start)), None, length=120)[1])
