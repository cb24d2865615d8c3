"""Recurrent networks, as they are written by hand and by libraries."""

import jax
import jax.numpy as jnp

from lapwing.bench.loop_bodies._body import Draw, add, body, mean_square

sigmoid = jax.nn.sigmoid


def rnn(scan, w, xs):
    def step(h, x):
        h = jnp.tanh(x @ w["in"] + h @ w["state"] + w["bias"])
        return h, h

    _, hs = scan(step, jnp.zeros((xs.shape[1], w["bias"].size)), xs)
    return mean_square(hs)


def _rnn(batch: int, width: int, steps: int):
    def draw(r: Draw):
        w = {"in": r.weight(width, width), "state": r.weight(width, width), "bias": r.normal(width)}
        return w, r.normal(steps, batch, width)

    return draw


for _batch, _width, _steps in (
    (1, 16, 1000), (1, 64, 500), (1, 256, 200), (1, 512, 100),
    (32, 16, 300), (32, 64, 200), (32, 256, 30), (256, 64, 50), (256, 256, 5),
):  # fmt: skip
    add(f"rnn_{_batch}_{_width}", "recurrent", rnn, _rnn(_batch, _width, _steps))


def _gated(gates: int, batch: int, width: int, steps: int):
    def draw(r: Draw):
        w = {
            "in": r.weight(width, gates * width),
            "state": r.weight(width, gates * width),
            "bias": r.normal(gates * width, scale=0.1),
            "gain": 1 + r.normal(gates * width, scale=0.1),
        }
        return w, r.normal(steps, batch, width)

    return draw


def gru_step(w, h, x):
    update, reset, new = jnp.split(x @ w["in"] + w["bias"], 3, -1)
    update_h, reset_h, new_h = jnp.split(h @ w["state"], 3, -1)
    update, reset = sigmoid(update + update_h), sigmoid(reset + reset_h)
    return update * h + (1 - update) * jnp.tanh(new + reset * new_h)


@body("recurrent", _gated(3, 16, 192, 40))
def gru(scan, w, xs):
    def step(h, x):
        h = gru_step(w, h, x)
        return h, h

    return mean_square(scan(step, jnp.zeros(xs.shape[1:]), xs)[1])


def lstm_cell(c, gates):
    i, f, g, o = jnp.split(gates, 4, -1)
    c = sigmoid(f + 1) * c + sigmoid(i) * jnp.tanh(g)
    return c, sigmoid(o) * jnp.tanh(c)


def run_lstm(scan, w, xs, around_step=lambda step: step):
    def step(carry, x):
        c, h = carry
        c, h = lstm_cell(c, x @ w["in"] + h @ w["state"] + w["bias"])
        return (c, h), h

    zeros = jnp.zeros(xs.shape[1:])
    return mean_square(scan(around_step(step), (zeros, zeros), xs)[1])


@body("recurrent", _gated(4, 16, 128, 60))
def lstm(scan, w, xs):
    return run_lstm(scan, w, xs)


def layer_norm(x, gain, bias):
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * gain + bias


@body("recurrent", _gated(4, 16, 128, 60))
def layer_norm_lstm(scan, w, xs):
    def step(carry, x):
        c, h = carry
        c, h = lstm_cell(c, layer_norm(x @ w["in"] + h @ w["state"], w["gain"], w["bias"]))
        return (c, h), h

    zeros = jnp.zeros(xs.shape[1:])
    return mean_square(scan(step, (zeros, zeros), xs)[1])


@body("recurrent", lambda r: (r.weight(256, 128), r.normal(100, 8, 128)))
def concatenated_rnn(scan, w, xs):
    def step(h, x):
        h = jnp.tanh(jnp.concatenate([x, h], -1) @ w)
        return h, h

    return mean_square(scan(step, jnp.zeros(xs.shape[1:]), xs)[1])


@body("recurrent", lambda r: (r.weight(256, 512), r.normal(60, 16, 128)))
def concatenated_lstm(scan, w, xs):
    def step(carry, x):
        c, h = carry
        c, h = lstm_cell(c, jnp.concatenate([x, h], -1) @ w)
        return (c, h), h

    zeros = jnp.zeros(xs.shape[1:])
    return mean_square(scan(step, (zeros, zeros), xs)[1])


@body("recurrent", lambda r: ([_gated(3, 8, 96, 80)(r)[0] for _ in range(2)], r.normal(80, 8, 96)))
def bidirectional_gru(scan, ws, xs):
    forward, backward = ws
    zeros = jnp.zeros(xs.shape[1:])
    _, hs = scan(lambda h, x: (gru_step(forward, h, x),) * 2, zeros, xs)
    _, back = scan(lambda h, x: (gru_step(backward, h, x),) * 2, zeros, xs, reverse=True)
    return mean_square(jnp.concatenate([hs, back], -1))


@body("recurrent", lambda r: ([_gated(4, 8, 96, 50)(r)[0] for _ in range(3)], r.normal(50, 8, 96)))
def stacked_lstm(scan, layers, xs):
    def step(states, x):
        after = []
        for w, (c, h) in zip(layers, states, strict=True):
            c, x = lstm_cell(c, x @ w["in"] + h @ w["state"] + w["bias"])
            after.append((c, x))
        return after, x

    zeros = jnp.zeros(xs.shape[1:])
    return mean_square(scan(step, [(zeros, zeros)] * 3, xs)[1])


@body("recurrent", _gated(3, 16, 128, 60))
def counter_gru(scan, w, xs):
    """As `fori_loop` is written: the step looks its input up by a counter."""

    def step(carry, _):
        i, h, total = carry
        h = gru_step(w, h, xs[i])
        return (i + 1, h, total + jnp.mean(h * h)), None

    init = (0, jnp.zeros(xs.shape[1:]), jnp.zeros(()))
    return scan(step, init, None, length=xs.shape[0])[0][2]


@body("recurrent", lambda r: (*_gated(3, 16, 128, 60)(r), r.key()))
def dropout_gru(scan, w, xs, key):
    def step(carry, x):
        h, key = carry
        key, now = jax.random.split(key)
        mask = jax.random.bernoulli(now, 0.9, h.shape)
        h = gru_step(w, jnp.where(mask, h / 0.9, 0), x)
        return (h, key), h

    return mean_square(scan(step, (jnp.zeros(xs.shape[1:]), key), xs)[1])


@body("recurrent", _gated(4, 16, 128, 60))
def checkpointed_lstm(scan, w, xs):
    return run_lstm(scan, w, xs, jax.checkpoint)


def convolve(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@body(
    "recurrent",
    lambda r: (
        {"in": r.normal(3, 3, 3, 32, scale=0.2), "state": r.normal(3, 3, 8, 32, scale=0.1)},
        r.normal(8, 2, 16, 16, 3),
    ),
)
def convolutional_lstm(scan, w, xs):
    def step(carry, x):
        c, h = carry
        c, h = lstm_cell(c, convolve(x, w["in"]) + convolve(h, w["state"]))
        return (c, h), h

    zeros = jnp.zeros((*xs.shape[1:-1], 8))
    return mean_square(scan(step, (zeros, zeros), xs)[1])


@body("recurrent", lambda r: ({"z": r.weight(128, 128), "h": r.weight(128, 128)}, r.normal(80, 16, 128)))
def min_gru(scan, w, xs):
    def step(h, x):
        z = sigmoid(x @ w["z"])
        h = (1 - z) * h + z * (x @ w["h"])
        return h, h

    return mean_square(scan(step, jnp.zeros(xs.shape[1:]), xs)[1])


@body(
    "recurrent",
    lambda r: (r.weight(300, 4), r.normal(300, 300, scale=0.05), r.normal(4, 300), r.normal(200, 4)),
)
def echo_state(scan, readout, reservoir, inputs, xs):
    def step(h, x):
        h = 0.7 * h + 0.3 * jnp.tanh(reservoir @ h + x @ inputs)
        return h, h @ readout

    return mean_square(scan(step, jnp.zeros(300), xs)[1] - xs)


@body(
    "recurrent",
    lambda r: (
        {"table": r.normal(1000, 64), **_gated(3, 16, 64, 60)(r)[0]},
        r.integers(1000, 60, 16),
    ),
)
def embedding_gru(scan, w, tokens):
    def step(h, token):
        h = gru_step(w, h, w["table"][token])
        return h, h

    return mean_square(scan(step, jnp.zeros((tokens.shape[1], 64)), tokens)[1])


@body(
    "recurrent",
    lambda r: (
        {"table": r.normal(500, 64), **_gated(3, 1, 64, 1)(r)[0], "out": r.weight(64, 500)},
        r.integers(500, 40, 8),
    ),
)
def language_model(scan, w, tokens):
    """The loss of each token inside the step, as in a character model written at once."""

    def step(carry, pair):
        h, total = carry
        token, target = pair
        h = gru_step(w, h, w["table"][token])
        logits = jax.nn.log_softmax(h @ w["out"])
        return (h, total - jnp.mean(jnp.take_along_axis(logits, target[:, None], 1))), None

    (_, total), _ = scan(step, (jnp.zeros((tokens.shape[1], 64)), 0.0), (tokens[:-1], tokens[1:]))
    return total / tokens.shape[0]
