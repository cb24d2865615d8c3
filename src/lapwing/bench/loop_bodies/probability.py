"""Filters, dynamic programs and samplers."""

import jax
import jax.numpy as jnp

from lapwing.bench.loop_bodies._body import body, mean_square

logsumexp = jax.nn.logsumexp


@body(
    "probability",
    lambda r: (
        {"a": r.weight(8, 8, gain=0.5), "c": r.weight(4, 8), "q": r.normal(8), "r": r.normal(4)},
        r.normal(60, 4),
    ),
)
def kalman_filter(scan, w, ys):
    def step(carry, y):
        mean, covariance = carry
        mean, covariance = w["a"] @ mean, w["a"] @ covariance @ w["a"].T + jnp.diag(jnp.exp(w["q"]))
        noise = w["c"] @ covariance @ w["c"].T + jnp.diag(jnp.exp(w["r"]))
        error = y - w["c"] @ mean
        gain = jnp.linalg.solve(noise, w["c"] @ covariance).T
        likelihood = error @ jnp.linalg.solve(noise, error) + jnp.linalg.slogdet(noise)[1]
        return (mean + gain @ error, covariance - gain @ w["c"] @ covariance), likelihood

    return jnp.mean(scan(step, (jnp.zeros(8), jnp.eye(8)), ys)[1])


@body("probability", lambda r: ({"move": r.normal(24, 24), "emit": r.normal(24, 50)}, r.integers(50, 100, 8)))
def hmm_forward(scan, w, tokens):
    move, emit = jax.nn.log_softmax(w["move"]), jax.nn.log_softmax(w["emit"])

    def step(alpha, token):
        return logsumexp(alpha[:, :, None] + move, axis=1) + emit[:, token].T, None

    alpha, _ = scan(step, jnp.zeros((8, 24)), tokens)
    return -jnp.mean(logsumexp(alpha, axis=-1))


@body("probability", lambda r: (r.normal(60, 8, 20), r.integers(19, 8, 12)))
def ctc(scan, logits, labels):
    """Connectionist temporal classification, in log space; the last class is blank."""
    states = jnp.full((8, 25), 19).at[:, 1::2].set(labels)
    skips = jnp.concatenate(
        [jnp.zeros((8, 2), bool), (states[:, 2:] != states[:, :-2]) & (states[:, 2:] != 19)], 1
    )

    def step(alpha, now):
        one = jnp.pad(alpha[:, :-1], ((0, 0), (1, 0)), constant_values=-1e5)
        two = jnp.where(skips, jnp.pad(alpha[:, :-2], ((0, 0), (2, 0)), constant_values=-1e5), -1e5)
        alpha = jnp.logaddexp(jnp.logaddexp(alpha, one), two)
        return alpha + jnp.take_along_axis(jax.nn.log_softmax(now), states, 1), None

    alpha, _ = scan(step, jnp.full((8, 25), -1e5).at[:, 0].set(0.0), logits)
    return -jnp.mean(jnp.logaddexp(alpha[:, -1], alpha[:, -2])) / logits.shape[0]


@body(
    "probability",
    lambda r: (
        {"pairs": r.normal(16, 16), "out": r.weight(64, 16)},
        r.normal(50, 8, 64),
        r.integers(16, 50, 8),
    ),
)
def crf(scan, w, hidden, tags):
    """The log likelihood of tags: the score of a path minus the log partition."""

    def step(carry, now):
        alpha, score, before = carry
        h, tag = now
        emit = h @ w["out"]
        alpha = logsumexp(alpha[:, :, None] + w["pairs"], axis=1) + emit
        score = score + w["pairs"][before, tag] + jnp.take_along_axis(emit, tag[:, None], 1)[:, 0]
        return (alpha, score, tag), None

    (alpha, score, _), _ = scan(
        step, (jnp.zeros((8, 16)), jnp.zeros(8), jnp.zeros(8, jnp.int32)), (hidden, tags)
    )
    return jnp.mean(logsumexp(alpha, axis=-1) - score) / 50


@body("probability", lambda r: (r.uniform(96, 96),))
def soft_edit_distance(scan, costs):
    """Soft dynamic time warping: an outer loop over rows, an inner one along each."""

    def soft_min(*values):
        return -0.5 * logsumexp(-jnp.stack(values) / 0.5, axis=0)

    def row(above, cost):
        def cell(left, now):
            cost, up, corner = now
            value = cost + soft_min(left, up, corner)
            return value, value

        corner = jnp.concatenate([above[:1] + 1, above[:-1]])
        _, values = scan(cell, above[0] + 1.0, (cost, above, corner))
        return values, None

    return scan(row, jnp.arange(1.0, 97.0), costs)[0][-1]


@body("probability", lambda r: (r.normal(2, scale=0.1), r.normal(100, 64), r.key()))
def particle_filter(scan, w, ys, key):
    """Particles move, are weighed and resampled; keys are xs."""

    def step(particles, now):
        y, key = now
        move, choose = jax.random.split(key)
        particles = jnp.exp(-jnp.exp(w[0])) * particles + 0.3 * jax.random.normal(move, particles.shape)
        logits = -((y[0] - particles * jnp.exp(w[1])) ** 2)
        chosen = jax.random.categorical(choose, logits, shape=particles.shape)
        return particles[chosen], logsumexp(logits)

    keys = jax.random.split(key, ys.shape[0])
    return -jnp.mean(scan(step, jnp.zeros(64), (ys, keys))[1])


@body("probability", lambda r: (r.normal(2, scale=0.1), r.key()))
def random_walk(scan, w, key):
    def step(x, key):
        x = x + w[0] * jnp.sin(x) + jnp.exp(w[1]) * 0.1 * jax.random.normal(key, x.shape)
        return x, jnp.mean(x**2)

    return jnp.mean(scan(step, jnp.zeros(256), jax.random.split(key, 100))[1])


@body("probability", lambda r: (r.normal(4), r.normal(16, 4), r.key()))
def metropolis(scan, w, x, key):
    """Chains accept or reject; the loss is their mean energy."""

    def energy(x):
        return jnp.sum(jnp.exp(w) * x**2, -1)

    def step(carry, _):
        x, key = carry
        key, propose, accept = jax.random.split(key, 3)
        there = x + 0.3 * jax.random.normal(propose, x.shape)
        taken = jnp.log(jax.random.uniform(accept, x.shape[:1])) < energy(x) - energy(there)
        x = jnp.where(taken[:, None], there, x)
        return (x, key), jnp.mean(energy(x))

    return jnp.mean(scan(step, (x, key), None, length=100)[1])


@body(
    "probability",
    lambda r: (
        {"state": r.weight(48, 48), "out": r.weight(48, 200), "table": r.normal(200, 48)},
        r.normal(8, 48),
    ),
)
def beam_search(scan, w, h):
    """The scores of eight beams; the best eight continuations go on."""

    def step(carry, _):
        h, scores = carry
        logits = scores[:, None] + jax.nn.log_softmax(h @ w["out"])
        scores, best = jax.lax.top_k(logits.reshape(-1), 8)
        h = jnp.tanh(h[best // 200] @ w["state"] + w["table"][best % 200])
        return (h, scores), None

    return -jnp.mean(scan(step, (h, jnp.zeros(8)), None, length=20)[0][1]) / 20


@body("probability", lambda r: (r.normal(128, 4), r.normal(60, 128)))
def sorted_quantiles(scan, w, xs):
    """A sort in the body: the loss of running quantiles."""

    def step(state, x):
        ordered = jnp.sort(0.9 * state + x)
        return ordered, jnp.tanh(ordered @ w)

    return mean_square(scan(step, jnp.zeros(128), xs)[1])


@body("probability", lambda r: (r.uniform(5, low=0.2, high=0.8), r.normal(80, 2, 512)))
def option_pricing(scan, market, noise):
    """A call option under stochastic volatility (Heston), Euler steps of many paths."""
    speed, level, spread, correlation, start = market

    def step(carry, noise):
        price, variance = carry
        root = jnp.sqrt(jnp.maximum(variance, 1e-4) / 80)
        mixed = correlation * noise[0] + jnp.sqrt(1 - correlation**2) * noise[1]
        price = price * jnp.exp(-variance / 160 + root * mixed)
        return (price, variance + speed * (level - variance) / 80 + spread * root * noise[0]), None

    (price, _), _ = scan(step, (jnp.ones(512), jnp.full(512, start)), noise)
    return jnp.mean(jax.nn.relu(price - 1.0))
