"""Mistakes in models: axes, the future, what is zero or equal at the beginning."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import lapwing as lw
from lapwing.task import Task

from .._parts import apply, blobs, config, forward, gru, gru_step, layers, linear, nll, planted


@planted(
    cause=r"batch|axis|axes|examples?\b.*(mix|depend|influenc|other)|transpos",
    sees="the same sequence gets another answer in another batch, and validation is worse than training",
)
def recurrence_over_the_batch(wrong: bool) -> Any:
    """`lax.scan` goes along the first axis, which is that of the examples: the axes were not swapped."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"cell": gru(k1, 2, 24), "out": linear(k2, 24, 1)}

    def predict(params: Any, batch: Any) -> jax.Array:
        xs = batch["x"] if wrong else jnp.swapaxes(batch["x"], 0, 1)

        def step(h: jax.Array, x: jax.Array) -> Any:
            h = gru_step(params["cell"], h, x)
            return h, h

        _, hs = jax.lax.scan(step, jnp.zeros((xs.shape[1], 24)), xs)
        hs = hs if wrong else jnp.swapaxes(hs, 0, 1)
        return apply(params["out"], hs)[..., 0]

    def data(key: jax.Array, step: Any) -> Any:
        x = jax.random.normal(key, (32, 10, 2))
        return {"x": x, "y": jnp.tanh(jnp.cumsum(x[..., 0], 1) / 2)}

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["y"],
    )
    return task, config(300, 1e-2)


class WaveNet(nnx.Module):
    def __init__(self, padding: str, rngs: nnx.Rngs):
        self.first = nnx.Conv(1, 12, (3,), padding=padding, rngs=rngs)
        self.second = nnx.Conv(12, 12, (3,), padding=padding, rngs=rngs)
        self.out = nnx.Linear(12, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(nnx.relu(self.second(nnx.relu(self.first(x)))))


@planted(
    cause=r"future|causal|later|padding|ahead|leak",
    sees="a tiny error in training, and noise as soon as the model continues a series",
)
def convolution_that_looks_ahead(wrong: bool) -> Any:
    """A forecaster for every time has convolutions with padding on both sides."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        phase = jax.random.uniform(k1, (24, 1)) * 6 + 0.7 * jnp.arange(17)
        series = jnp.sin(phase) + 0.4 * jax.random.normal(k2, phase.shape)
        return {"x": series[:, :-1, None], "y": series[:, 1:, None]}

    task = lw.task.nnx(
        lambda rngs: WaveNet("SAME" if wrong else "CAUSAL", rngs),
        lambda model, batch: jnp.mean((model(batch["x"]) - batch["y"]) ** 2),
        data=data,
        predict=lambda model, batch: model(batch["x"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["y"],
    )
    return task, config(200, 5e-3)


@planted(
    cause=r"zero|dead|no gradient|never|adapter|lora",
    sees="fine-tuning does nothing: the loss is flat from the first step",
)
def adapter_of_two_zeros(wrong: bool) -> Any:
    """Both factors of a low-rank adapter begin at zero, so each one's gradient is zero for ever."""
    base = layers(jax.random.key(31), 6, 32, 3)

    def init(key: jax.Array) -> Any:
        down = jnp.zeros((6, 4)) if wrong else jax.random.normal(key, (6, 4)) / 6**0.5
        return {"base": base, "adapter": {"down": down, "up": jnp.zeros((4, 32))}}

    def predict(params: Any, batch: Any) -> jax.Array:
        first, last = params["base"]
        low = batch["x"] @ params["adapter"]["down"] @ params["adapter"]["up"]
        return apply(last, jax.nn.relu(apply(first, batch["x"]) + low))

    task = Task(
        init=init,
        data=lambda key, step: blobs(key, width=6),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        trainable=lambda params: {
            "base": jax.tree.map(lambda _: False, params["base"]),
            "adapter": {"down": True, "up": True},
        },
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(200, 1e-2)


@planted(
    cause=r"same key|identical|equal|symmetr|ensemble|members|alike|copies",
    sees="the members of the ensemble agree to the last digit, so its uncertainty is 0 everywhere",
)
def ensemble_of_one(wrong: bool) -> Any:
    """All members are made with the same key."""

    def make(key: jax.Array) -> Any:
        keys = jnp.stack([key] * 5) if wrong else jax.random.split(key, 5)
        return eqx.filter_vmap(lambda k: eqx.nn.MLP(3, 1, 24, 2, key=k))(keys)

    def members(models: Any, x: jax.Array) -> jax.Array:
        one = lambda model, x: jax.vmap(model)(x)[:, 0]  # noqa: E731
        return eqx.filter_vmap(one, in_axes=(eqx.if_array(0), None))(models, x)

    def loss(models: Any, batch: Any) -> Any:
        return jnp.mean((members(models, batch["x"]) - batch["y"]) ** 2)

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        x = jax.random.normal(k1, (16, 3))
        return {"x": x, "y": jnp.sin(2 * x[:, 0]) * x[:, 1] + 0.5 * jax.random.normal(k2, (16,))}

    def evaluate(models: Any, key: jax.Array) -> Any:
        batch = data(key, 0)
        answers = members(models, batch["x"])
        return {"error": jnp.mean((answers.mean(0) - batch["y"]) ** 2), "spread": answers.std(0).mean()}

    task = lw.task.equinox(
        make,
        loss,
        data=data,
        evaluate=evaluate,
        predict=lambda models, batch: members(models, batch["x"]).mean(0),
        targets=lambda batch: batch["y"],
    )
    return task, config()


@planted(
    cause=r"reset|no effect|hidden|state|carr|between|previous",
    sees="the first values of every document are worse than the later ones",
)
def document_begins_with_the_last_state(wrong: bool) -> Any:
    """Documents are cut into windows, and the state goes on from window to window; where a document begins, it should
    be reset."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"cell": gru(k1, 1, 16), "out": linear(k2, 16, 1)}, {"hidden": jnp.zeros((24, 16))}

    def data(key: jax.Array, step: Any) -> Any:
        """Two windows of a document follow each other."""
        document = jax.random.fold_in(jax.random.key(5), step // 2)
        x = jax.random.normal(document, (24, 16, 1))
        y = jnp.tanh(jnp.cumsum(x[..., 0], 1))
        cut = lambda a: jax.lax.dynamic_slice_in_dim(a, 8 * (step % 2), 8, 1)  # noqa: E731
        return {"x": cut(x), "y": cut(y), "begins": jnp.full(24, step % 2 == 0)}

    def run(params: Any, batch: Any, hidden: jax.Array) -> Any:
        if not wrong:
            hidden = jnp.where(batch["begins"][:, None], 0.0, hidden)

        def step(h: jax.Array, x: jax.Array) -> Any:
            h = gru_step(params["cell"], h, x)
            return h, h

        last, hs = jax.lax.scan(step, hidden, jnp.swapaxes(batch["x"], 0, 1))
        return apply(params["out"], jnp.swapaxes(hs, 0, 1))[..., 0], last

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        y, last = run(params, batch, state["hidden"])
        return jnp.mean((y - batch["y"]) ** 2), {}, {"hidden": jax.lax.stop_gradient(last)}

    task = Task(
        init=init,
        data=data,
        loss=loss,
        predict=lambda params, batch, state: run(params, batch, state["hidden"])[0],
        time_axis={"x": 1, "y": 1, "begins": None},
        output_time_axis=1,
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 1e-2)


@planted(
    cause=r"batch|examples?\b.*(mix|depend|influenc|other)|offset|index|indices|graph",
    sees="the error grows with the number of graphs in a batch",
)
def graphs_joined_without_offsets(wrong: bool) -> Any:
    """Graphs are joined to one big graph, but the numbers of their nodes are not shifted: all edges are in the first
    graph."""
    graphs, nodes, edges = 12, 5, 8

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        x = jax.random.normal(k1, (graphs, nodes, 3))
        senders = jax.random.randint(k2, (graphs, edges), 0, nodes)
        receivers = jax.random.randint(k3, (graphs, edges), 0, nodes)
        messages = jnp.take_along_axis(x[..., 0], senders, 1) * jnp.take_along_axis(x[..., 1], receivers, 1)
        return {"x": x, "senders": senders, "receivers": receivers, "y": messages.sum(1) / 3}

    def init(key: jax.Array) -> Any:
        k1, k2, k3 = jax.random.split(key, 3)
        return {"message": layers(k1, 6, 24, 12), "node": layers(k2, 15, 24, 8), "out": linear(k3, 8, 1)}

    def predict(params: Any, batch: Any) -> jax.Array:
        x = batch["x"].reshape(-1, 3)
        offset = 0 if wrong else nodes * jnp.arange(len(batch["x"]))[:, None]
        senders, receivers = ((batch[name] + offset).reshape(-1) for name in ("senders", "receivers"))
        messages = forward(params["message"], jnp.concatenate([x[senders], x[receivers]], -1))
        received = jax.ops.segment_sum(messages, receivers, num_segments=len(x))
        h = forward(params["node"], jnp.concatenate([x, received], -1))
        return apply(params["out"], h.reshape(-1, nodes, 8).sum(1))[:, 0]

    task = Task(
        init=init,
        data=data,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, config(400, 5e-3)


@planted(
    cause=r"scale|saturat|init|too large|variance|fan",
    sees="the loss begins at 60 instead of 1.1 and is still far from good when the twin has finished",
)
def weights_of_size_one(wrong: bool) -> Any:
    """The weights are normal numbers of size 1, not divided by the root of the number of inputs: all units of the tanh
    are saturated."""

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key, 4)
        sizes = [(16, 64), (64, 64), (64, 64), (64, 3)]
        scale = [1.0 if wrong else size[0] ** -0.5 for size in sizes]
        return [
            {"w": s * jax.random.normal(k, size), "b": jnp.zeros(size[1])}
            for k, s, size in zip(keys, scale, sizes, strict=True)
        ]

    def predict(params: Any, batch: Any) -> jax.Array:
        *hidden, last = params
        h = batch["x"]
        for layer in hidden:
            h = jnp.tanh(apply(layer, h))
        return apply(last, h)

    task = Task(
        init=init,
        data=lambda key, step: blobs(key, width=16, spread=2.5),
        loss=lambda params, batch: (nll(predict(params, batch), batch["label"]), {}),
        predict=predict,
        targets=lambda batch: batch["label"],
        classes=3,
    )
    return task, config(200, 1e-3)
