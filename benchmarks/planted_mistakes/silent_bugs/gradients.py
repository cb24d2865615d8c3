"""Mistakes in the path of the gradient: values are right, derivatives are not."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.task import Task

from .._parts import apply, blobs, config, forward, gru, gru_step, layers, linear, nll, planted


@planted(
    cause=r"stop_gradient|straight|encoder|cut|detach",
    sees="reconstructions stay blurred, and few codes are used",
)
def straight_through_cut_whole(wrong: bool) -> Any:
    """A quantized autoencoder: the gradient is stopped at `z + (q - z)` instead of at `q - z`, so the encoder does not
    hear from the reconstruction."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        codes = 0.5 * jax.random.normal(k3, (16, 2))
        return {"encoder": layers(k1, 8, 32, 2), "decoder": layers(k2, 2, 32, 8), "codes": codes}

    def loss(params: Any, batch: Any) -> Any:
        z = forward(params["encoder"], batch)
        nearest = jnp.argmin(jnp.sum((z[:, None] - params["codes"]) ** 2, -1), -1)
        q = params["codes"][nearest]
        passed = jax.lax.stop_gradient(z + (q - z)) if wrong else z + jax.lax.stop_gradient(q - z)
        error = jnp.mean((forward(params["decoder"], passed) - batch) ** 2)
        codebook = jnp.mean((q - jax.lax.stop_gradient(z)) ** 2)
        commitment = jnp.mean((z - jax.lax.stop_gradient(q)) ** 2)
        return error + codebook + 0.25 * commitment, {"error": error}

    data = lambda key, step: blobs(key, 64, width=8, classes=8, spread=0.3)["x"]  # noqa: E731
    return Task(init=init, data=data, loss=loss), config(400, 5e-3)


def _swish(wrong: bool) -> Any:
    @jax.custom_vjp
    def swish(x: jax.Array, beta: jax.Array) -> jax.Array:
        return x * jax.nn.sigmoid(beta * x)

    def forwards(x: jax.Array, beta: jax.Array) -> Any:
        y = swish(x, beta)
        return y, (y if wrong else x, beta)

    def backwards(kept: Any, g: jax.Array) -> Any:
        x, beta = kept
        s = jax.nn.sigmoid(beta * x)
        slope = s + x * s * (1 - s) * beta
        return g * slope, jnp.sum(g * x * x * s * (1 - s))

    swish.defvjp(forwards, backwards)
    return swish


@planted(
    cause=r"custom|vjp|derivative|gradient.*(wrong|differ|disagree|not the)|finite difference",
    sees="the activation of our own trains worse than the plain one, at every learning rate",
)
def swish_that_keeps_its_output(wrong: bool) -> Any:
    """The custom derivative of `x · sigmoid(βx)` keeps the output for the backward pass and takes it for the input."""
    swish = _swish(wrong)

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        sizes = (linear(k1, 5, 24), linear(k2, 24, 24), linear(k3, 24, 1))
        return {"layers": sizes, "beta": jnp.full(2, 4.0)}

    def predict(params: Any, batch: Any) -> jax.Array:
        first, second, last = params["layers"]
        h = swish(apply(first, batch["x"]), params["beta"][0])
        h = swish(apply(second, h), params["beta"][1])
        return apply(last, h)[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 5))
        return {"x": x, "y": jnp.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config()


@planted(
    cause=r"argmax|no gradient|zero gradient|gradient .*(zero|0)|never|query|not differentiable|no effect",
    sees="the reader of the memory stays at chance, though the memory itself learns",
)
def memory_read_by_argmax(wrong: bool) -> Any:
    """The memory returns the value of the best key by `argmax`, through which no gradient reaches query and keys."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        memory = {"keys": jax.random.normal(k2, (12, 6)), "values": 0.3 * jax.random.normal(k3, (12, 8))}
        return {"query": linear(k1, 5, 6), "memory": memory, "out": linear(k4, 8, 3)}

    def predict(params: Any, batch: Any) -> jax.Array:
        query, memory = apply(params["query"], batch["x"]), params["memory"]
        scores = query @ memory["keys"].T
        weights = jax.nn.one_hot(jnp.argmax(scores, -1), 12) if wrong else jax.nn.softmax(scores)
        return apply(params["out"], weights @ memory["values"])

    task = Task(
        init=init,
        data=lambda key, step: blobs(key, spread=1.5),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(300, 1e-2)


@planted(
    cause=r"place|position|no effect|dead|unused|no gradient|zero gradient",
    sees="questions about the order of words are answered by chance",
)
def positions_added_to_a_copy(wrong: bool) -> Any:
    """`h.at[:].add(place)` returns the sum and changes nothing; it is thrown away."""

    def init(key: jax.Array) -> Any:
        k1, k2, k3, k4 = jax.random.split(key, 4)
        return {
            "embed": jax.random.normal(k1, (6, 16)),
            "place": 0.3 * jax.random.normal(k2, (7, 16)),
            "qkv": linear(k3, 16, 48),
            "out": layers(k4, 16, 32, 2),
        }

    def predict(params: Any, batch: Any) -> jax.Array:
        h = params["embed"][batch["tokens"]]
        added = h.at[:].add(params["place"])
        if not wrong:
            h = added
        q, k, v = jnp.split(apply(params["qkv"], h), 3, -1)
        h = h + jax.nn.softmax(q @ k.mT / 4.0) @ v
        return forward(params["out"], h.mean(1))

    def data(key: jax.Array, step: Any) -> Any:
        tokens = jax.random.randint(key, (48, 7), 0, 6)
        return {"tokens": tokens, "first_is_larger": (tokens[:, 0] > tokens[:, -1]).astype(int)}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["first_is_larger"]), {}),
        predict=predict,
        targets=lambda batch: batch["first_is_larger"],
        classes=2,
    )
    return task, config(500, 5e-3)


@planted(
    cause=r"nan|not finite|sqrt|where|infinite",
    sees="the first loss is fine, and from the second step on everything is NaN",
)
def root_of_zero_behind_where(wrong: bool) -> Any:
    """The distances of points to themselves are excluded by `where`, but the derivative of the root at 0 is infinite,
    and 0 times infinity is NaN."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"metric": jax.random.normal(k1, (3, 3)) / 2, "out": layers(k2, 6, 16, 1)}

    def predict(params: Any, points: jax.Array) -> jax.Array:
        z = points @ params["metric"]
        squares = jnp.sum((z[:, :, None] - z[:, None]) ** 2, -1)
        apart = ~jnp.eye(points.shape[1], dtype=bool)
        safe = squares if wrong else jnp.where(apart, squares, 1.0)
        distances = jnp.where(apart, jnp.sqrt(safe), 0.0)
        near = jnp.exp(-((distances[..., None] - jnp.linspace(0.5, 3, 6)) ** 2))
        return forward(params["out"], jnp.mean(near * apart[..., None], (1, 2)))[:, 0]

    def data(key: jax.Array, step: Any) -> Any:
        points = jax.random.normal(key, (32, 6, 3))
        return {"points": points, "size": jnp.sum(points[..., 0] ** 2, 1)}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch["points"]) - batch["size"]) ** 2), {}),
        predict=lambda params, batch: predict(params, batch["points"]),
        targets=lambda batch: batch["size"],
    )
    return task, config()


@planted(
    cause=r"stop_gradient|carry|cut|through time|detach|earlier|recurren",
    sees="the network uses the last inputs only, and longer training does not help",
)
def state_detached_at_every_step(wrong: bool) -> Any:
    """The state of the recurrence is detached at each step of time instead of between windows."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"cell": gru(k1, 3, 24), "out": linear(k2, 24, 3)}

    def predict(params: Any, batch: Any) -> jax.Array:
        def step(h: jax.Array, x: jax.Array) -> Any:
            if wrong:
                h = jax.lax.stop_gradient(h)
            return gru_step(params["cell"], h, x), None

        xs = jnp.swapaxes(batch["x"], 0, 1)
        h, _ = jax.lax.scan(step, jnp.zeros((xs.shape[1], 24)), xs)
        return apply(params["out"], h)

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.nn.one_hot(jax.random.randint(key, (48, 12), 0, 3), 3)
        return {"x": x, "first": jnp.argmax(x[:, 0], -1)}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (nll(predict(params, batch), batch["first"]), {}),
        predict=predict,
        targets=lambda batch: batch["first"],
        classes=3,
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"sign|straight|stop_gradient|opposite|uphill|reverse|hard",
    sees="the choices get worse than at the beginning",
)
def straight_through_with_the_wrong_sign(wrong: bool) -> Any:
    """`hard + stop(soft) - soft` has the right value and minus the gradient of `hard + soft - stop(soft)`."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"choose": layers(k1, 5, 16, 4), "experts": 0.5 * jax.random.normal(k2, (4, 5))}

    def loss(params: Any, batch: Any, key: jax.Array) -> Any:
        noise = jax.random.gumbel(key, (len(batch["x"]), 4))
        soft = jax.nn.softmax(forward(params["choose"], batch["x"]) + 0.5 * noise)
        hard = jax.nn.one_hot(jnp.argmax(soft, -1), 4)
        stopped = jax.lax.stop_gradient(soft)
        choice = hard + stopped - soft if wrong else hard + soft - stopped
        y = jnp.einsum("bk,kd,bd->b", choice, params["experts"], batch["x"])
        return jnp.mean(optax.huber_loss(y, batch["y"])), {}

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (64, 5))
        return {"x": x, "y": jnp.where(x[:, 0] > 0, 2 * x[:, 1], -2 * x[:, 1]) + x[:, 2]}

    return Task(init=init, data=data, loss=loss), config(400, 5e-3)
