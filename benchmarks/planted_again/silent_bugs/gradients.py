"""Mistakes in gradients: targets that move, rules of derivatives, what cannot be differentiated, what is cut."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen as nn

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, blobs, config, forward, layers, linear, nll, planted


@planted(
    cause=r"stop_gradient|bootstrap|target.{0,60}gradient|gradient.{0,60}target|semi-?gradient|moving target",
    sees="the loss is lower than that of others, and the values are pulled to their mean",
)
def values_that_move_their_own_targets(wrong: bool) -> Any:
    """Temporal differences: the value of the next state is a target, and gradient flows through it, for want of a
    `stop_gradient`. Where the next state is random, that has another solution."""
    jump = jax.random.dirichlet(jax.random.key(2), jnp.full(8, 0.3), (8,))
    reward, discount = jnp.arange(8.0) % 3 - 1, 0.9
    value = jnp.linalg.solve(jnp.eye(8) - discount * jump, reward)

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, jax.nn.one_hot(batch["state"], 8))[:, 0]

    def loss(params: Any, batch: Any) -> Any:
        after = predict(params, {"state": batch["next"]})
        target = batch["reward"] + discount * (after if wrong else jax.lax.stop_gradient(after))
        return jnp.mean((predict(params, batch) - target) ** 2), {}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        state = jax.random.randint(k1, (64,), 0, 8)
        return {
            "state": state,
            "next": jax.random.categorical(k2, jnp.log(jump[state])),
            "reward": reward[state],
        }

    def evaluate(params: Any, key: jax.Array) -> Any:
        return {"error": jnp.sqrt(jnp.mean((predict(params, {"state": jnp.arange(8)}) - value) ** 2))}

    task = Task(lambda key: layers(key, 8, 24, 1), data, loss, evaluate=evaluate, predict=predict)
    return task, config(800)


@planted(
    cause=r"stop_gradient|collaps|target.{0,60}gradient|gradient.{0,60}target|both (sides|branches|views)|constant"
    r"|all (the same|alike)",
    sees="the loss is perfect after a few hundred steps, and a classifier on the vectors is at chance",
)
def two_views_meet_in_one_point(wrong: bool) -> Any:
    """Two views of an example, no negatives: what is predicted should be stopped, and is not, so all vectors become
    one."""
    mixing = jax.random.normal(jax.random.key(7), (4, 12))

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"encode": layers(k1, 12, 32, 8), "guess": layers(k2, 8, 16, 8)}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (32, 4)) @ mixing
        noise = lambda k: 0.4 * jax.random.normal(k, x.shape)  # noqa: E731
        return {"one": x + noise(k2), "two": x + noise(k3)}

    def unit(x: jax.Array) -> jax.Array:
        return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)

    def loss(params: Any, batch: Any) -> Any:
        one, two = (forward(params["encode"], batch[view]) for view in ("one", "two"))
        target = (lambda z: z) if wrong else jax.lax.stop_gradient
        alike = lambda a, b: jnp.mean(jnp.sum(unit(forward(params["guess"], a)) * unit(target(b)), 1))  # noqa: E731
        return -(alike(one, two) + alike(two, one)) / 2, {}

    def evaluate(params: Any, key: jax.Array) -> Any:
        vectors = unit(forward(params["encode"], data(key, 0)["one"]))
        return {"alike": jnp.mean(vectors @ vectors.T)}

    task = Task(
        init, data, loss, evaluate=evaluate, predict=lambda params, b: forward(params["encode"], b["one"])
    )
    return task, config(600, 1e-3)


def _unit(wrong: bool) -> Any:
    @jax.custom_vjp
    def unit(x: jax.Array) -> jax.Array:
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def forwards(x: jax.Array) -> Any:
        return unit(x), (unit(x), jnp.linalg.norm(x, axis=-1, keepdims=True))

    def backwards(kept: Any, g: jax.Array) -> Any:
        y, norm = kept
        along = jnp.sum(g * y, -1, keepdims=True) * y
        return ((g if wrong else g - along) / norm,)

    unit.defvjp(forwards, backwards)
    return unit


class Face(eqx.Module):
    net: eqx.nn.MLP
    names: jax.Array

    def __init__(self, key: jax.Array):
        k1, k2 = jax.random.split(key)
        self.net = eqx.nn.MLP(5, 6, 24, 1, jnp.tanh, key=k1)
        self.names = jax.random.normal(k2, (3, 6))

    def __call__(self, x: jax.Array, unit: Any) -> jax.Array:
        return 6 * unit(self.names) @ unit(self.net(x))


@planted(
    cause=r"custom|own (derivative|gradient|rule)|backward|\bunit\b|_unit",
    sees="the training needs a smaller learning rate than that of others, and its vectors grow without end",
)
def unit_vectors_without_the_projection(wrong: bool) -> Any:
    """The own derivative of the normalisation divides by the norm, and forgets to take away what points along the
    vector."""
    unit = _unit(wrong)

    def predict(model: Any, batch: Any) -> jax.Array:
        return jax.vmap(lambda x: model(x, unit))(batch["x"])

    task = lw.task.equinox(
        Face,
        lambda model, batch: nll(predict(model, batch), batch["label"]),
        data=lambda key, step: blobs(key),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(300)


class Compressor(nn.Module):
    wrong: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        code = 3 * nn.tanh(nn.Dense(6, name="encoder")(x))
        rounded = jnp.round(code)
        code = rounded if self.wrong else code + jax.lax.stop_gradient(rounded - code)
        return nn.Dense(10)(nn.relu(nn.Dense(32)(code)))


@planted(
    cause=r"round|straight.through|not differentiable|step function|piecewise|encoder.{0,60}gradient"
    r"|gradient.{0,60}encoder",
    sees="the pictures are blurred, and no change of the encoder's width makes a difference",
)
def code_that_is_rounded(wrong: bool) -> Any:
    """The code of an autoencoder is rounded, and the derivative of that is zero: the encoder stays as it was
    initialised."""
    basis = jax.random.normal(jax.random.key(5), (3, 10))

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        return jax.random.normal(k1, (48, 3)) @ basis + 0.05 * jax.random.normal(k2, (48, 10))

    task = lw.task.linen(
        Compressor(wrong),
        lambda model, x: jnp.mean((model(x) - x) ** 2),
        jnp.zeros((1, 10)),
        data=data,
        predict=lambda model, x: model(x),
    )
    return task, config(400)


@planted(
    cause=r"argmax|router|gate",
    sees="each expert is as good as the whole, and the shares of the experts never change",
)
def router_that_is_never_paid(wrong: bool) -> Any:
    """A router sends each example to the expert of its highest score, and the output is not multiplied by that score:
    nothing tells the router what was good."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {
            "router": linear(k1, 6, 4),
            "experts": jax.vmap(lambda k: linear(k, 6, 1))(jax.random.split(k2, 4)),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        score = jax.nn.softmax(apply(params["router"], batch["x"]))
        chosen = jnp.argmax(score, 1)
        outputs = jax.vmap(apply, (0, None))(params["experts"], batch["x"])[..., 0]
        output = outputs[chosen, jnp.arange(len(chosen))]
        return output if wrong else output * jnp.max(score, 1)

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (64, 6))
        return {"x": x, "y": jnp.abs(x[:, 0] * 2) + jnp.where(x[:, 1] > 0, x[:, 2], -x[:, 3])}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(500, 1e-2)


@planted(
    cause=r"codebook|stop_gradient|\bcut\b|straight.through",
    sees="the commitment falls, and the pictures are those of a random codebook",
)
def codebook_that_never_moves(wrong: bool) -> Any:
    """Vector quantisation has two terms, one that moves the codes and one that moves the encoder; the `stop_gradient`
    is at the codes in both."""
    stop = jax.lax.stop_gradient
    centers = 2 * jax.random.normal(jax.random.key(9), (8, 6))

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {
            "encode": layers(k1, 6, 24, 3),
            "decode": layers(k2, 3, 24, 6),
            "codebook": 0.2 * jax.random.normal(k3, (8, 3)),
        }

    def code_of(params: Any, x: jax.Array) -> Any:
        z = forward(params["encode"], x)
        distance = jnp.sum((z[:, None] - params["codebook"]) ** 2, -1)
        return z, params["codebook"][jnp.argmin(distance, 1)]

    def predict(params: Any, x: jax.Array) -> jax.Array:
        z, code = code_of(params, x)
        return forward(params["decode"], z + stop(code - z))

    def loss(params: Any, x: jax.Array) -> Any:
        z, code = code_of(params, x)
        moves = jnp.mean((z - stop(code)) ** 2 if wrong else (stop(z) - code) ** 2)
        error = jnp.mean((predict(params, x) - x) ** 2)
        return error + moves + 0.25 * jnp.mean((z - stop(code)) ** 2), {"error": error}

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        label = jax.random.randint(k1, (48,), 0, 8)
        return centers[label] + 0.1 * jax.random.normal(k2, (48, 6))

    return Task(init, data, loss, predict=predict), config(500)


@planted(
    cause=r"clip|minimum|\bcap|satur|flat|constant|bounded|(zero|no|vanish\w*) gradient|gradient.{0,40}(zero|vanish)",
    sees="the loss is 1 for a long time; with another seed it is not",
)
def errors_that_are_capped(wrong: bool) -> Any:
    """Against outliers the squared error is cut at 1, instead of made linear: what is wrong by more than 1 has no
    gradient, and at the beginning that is nearly all."""

    def robust(error: jax.Array) -> jax.Array:
        return (
            jnp.minimum(error**2, 1)
            if wrong
            else jnp.where(jnp.abs(error) < 1, error**2, 2 * jnp.abs(error) - 1)
        )

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (32, 4))
        strange = 20.0 * jax.random.bernoulli(k2, 0.05, (32,))
        return {"x": x, "y": 8 + 3 * x[:, 0] + jnp.sin(2 * x[:, 1]) + strange}

    def predict(params: Any, batch: Any) -> jax.Array:
        return forward(params, batch["x"])[:, 0]

    def evaluate(params: Any, key: jax.Array) -> Any:
        batch = data(key, 0)
        return {"median": jnp.median(jnp.abs(predict(params, batch) - batch["y"]))}

    task = Task(
        init=lambda key: layers(key, 4, 32, 1),
        data=data,
        loss=lambda params, batch: (jnp.mean(robust(predict(params, batch) - batch["y"])), {}),
        evaluate=evaluate,
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 1e-2)
