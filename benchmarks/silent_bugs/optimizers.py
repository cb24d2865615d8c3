"""Updates that do not do what they should: masks, schedules, clipping, accumulation, precision."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lapwing.bench.doctor import bug
from lapwing.task import Task
from lapwing.train import FitConfig

from ._parts import (
    CLASSES,
    VOCABULARY,
    apply,
    clusters,
    cross_entropy,
    dense,
    language_model,
    line,
    logits_of,
    mlp,
    run_mlp,
    text,
)


def _classifier(**fields: Any) -> Task:
    """A network with a normalization in the middle, as one fine-tunes them."""

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        norm = {"scale": jnp.ones(16), "shift": jnp.zeros(16)}
        return {"backbone": dense(k1, 6, 16), "norm": norm, "head": dense(k2, 16, CLASSES)}

    def predict(params: Any, batch: Any) -> jax.Array:
        x = jnp.tanh(apply(params["backbone"], batch["x"]))
        x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3)
        return apply(params["head"], x * params["norm"]["scale"] + params["norm"]["shift"])

    given: dict[str, Any] = {
        "init": init,
        "data": lambda key, step: clusters(key),
        "loss": lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        "predict": predict,
        "targets": lambda batch: batch["y"],
        "classes": CLASSES,
    }
    return Task(**(given | fields))


def _by_name(params: Any, label: Any) -> Any:
    """A tree of labels, one for each leaf, by the first name of its path."""
    return jax.tree_util.tree_map_with_path(lambda path, _: label(path[0].key), params)


@bug(
    "https://discuss.pytorch.org/t/obtaining-abnormal-changes-in-loss-and-accuracy/84911",
    cause=r"unchanged|gives it no update|no update|frozen",
)
def pytorch_forum_84911(wrong: bool) -> Task:
    """Everything but the normalization is frozen, and the optimizer was given the head only: nothing is trained."""

    def rates(params: Any) -> Any:
        return _by_name(params, lambda name: "train" if name == "head" else "keep")

    optimizer = optax.multi_transform({"train": optax.adam(1e-2), "keep": optax.set_to_zero()}, rates)
    return _classifier(
        optimizer=optimizer,
        trainable=lambda params: _by_name(params, lambda name: name == ("norm" if wrong else "head")),
    )


@bug(
    "https://stackoverflow.com/questions/60335387/pytorch-mnist-example-not-converge",
    cause=r"accumulat|earlier gradient|(sum|memory) of .*gradients|never (reset|cleared)|keeps growing|grows",
)
def stackoverflow_60335387(wrong: bool) -> Task:
    """`zero_grad` is missing: each update uses the sum of all gradients so far."""

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        total = jax.tree.map(jnp.add, state, updates) if wrong else updates
        return jax.tree.map(lambda g: -1e-2 * g, total), total

    def init(params: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, params)

    return _classifier(optimizer=optax.GradientTransformation(init, update))


@bug(
    "https://github.com/open-mmlab/mmpretrain/issues/702",
    cause=r"uphill|raw gradient|optax\.masked|backbone",
    held_out=True,
)
def mmpretrain_702(wrong: bool) -> Task:
    """Stages that should be frozen are changed by training. Here by `optax.masked`, which hands on the gradients of
    the leaves that its mask excludes, so that they are added to the parameters as they are."""

    def rest(params: Any) -> Any:
        return _by_name(params, lambda name: name != "backbone")

    def backbone(params: Any) -> Any:
        return _by_name(params, lambda name: name == "backbone")

    frozen = optax.masked(optax.adam(1e-2), rest)
    if wrong:
        return _classifier(optimizer=frozen)
    optimizer = optax.chain(frozen, optax.masked(optax.set_to_zero(), backbone))
    return _classifier(optimizer=optimizer, trainable=rest)


@bug(
    "https://github.com/pytorch/pytorch/issues/115607",
    cause=r"unchanged|not the same program|counter|gives it no update|Python",
)
def pytorch_115607(wrong: bool) -> Task:
    """A compiled optimizer that froze a part in one step keeps it frozen: the flag was read when it was compiled. Here
    an attribute that the loop counts up in Python decides whether the backbone is updated."""

    class Loop:
        step = 0

    inner = optax.adam(1e-2)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        count, state = state
        updates, state = inner.update(updates, state, params)
        frozen = Loop.step < 4 if wrong else count < 4
        updates = dict(updates)
        updates["backbone"] = jax.tree.map(lambda u: jnp.where(frozen, 0.0, u), updates["backbone"])
        return updates, (count + 1, state)

    def init(params: Any) -> Any:
        return jnp.int32(0), inner.init(params)

    return _classifier(optimizer=optax.GradientTransformation(init, update))


@bug(
    "https://github.com/huggingface/accelerate/issues/2665",
    cause=r"unchanged|no update",
)
def accelerate_2665(wrong: bool) -> Task:
    """The model is wrapped after the optimizer was made, which still refers to the old parameters: nothing changes.
    Here the labels of the optimizer look for the names before the wrapping."""

    def label(path: Any, _: Any) -> str:
        name = str(path[0].key) if wrong else str(path[1].key)
        return "head" if name == "head" else "body" if name == "body" else "other"

    rates: dict[Any, Any] = {"head": optax.adam(1e-2), "body": optax.adam(1e-3), "other": optax.set_to_zero()}

    def init(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        return {"module": {"body": mlp(k1, 6, 16, 16), "head": dense(k2, 16, CLASSES)}}

    def predict(params: Any, batch: Any) -> jax.Array:
        return apply(params["module"]["head"], run_mlp(params["module"]["body"], batch["x"]))

    return Task(
        init=init,
        data=lambda key, step: clusters(key),
        loss=lambda params, batch: (cross_entropy(predict(params, batch), batch["y"]), {}),
        optimizer=optax.multi_transform(
            rates, lambda params: jax.tree_util.tree_map_with_path(label, params)
        ),
        predict=predict,
        targets=lambda batch: batch["y"],
        classes=CLASSES,
    )


@bug(
    "https://github.com/huggingface/transformers/pull/34191",
    cause=r"accumulat",
    seen_later=True,
)
def transformers_34191(wrong: bool) -> Task:
    """Gradients of micro-batches are averaged, each a mean over its own number of tokens: tokens of short micro-batches
    count more than in one large batch."""

    def data(key: jax.Array, step: Any) -> Any:
        k1, k2 = jax.random.split(key)
        tokens = text(k1, time=9)
        longest = jnp.where(step % 2 == 0, 3, 9)  # micro-batches of short texts and of long ones
        length = jax.random.randint(k2, (16, 1), 2, longest)
        mask = (jnp.arange(8) < length).astype(jnp.float32)
        return {"inputs": tokens[:, :-1], "targets": tokens[:, 1:], "mask": mask}

    def loss(params: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(
            logits_of(params, batch["inputs"]), batch["targets"]
        )
        # 16 × 8 × 0.4: what a micro-batch has on average, the same number for each of them
        count = jnp.sum(batch["mask"]) if wrong else 51.2
        return jnp.sum(each * batch["mask"]) / count, {}

    return Task(
        init=language_model,
        data=data,
        loss=loss,
        optimizer=optax.MultiSteps(optax.adam(1e-3), 4),
        predict=lambda params, batch: logits_of(params, batch["inputs"]),
        time_axis=1,
        output_time_axis=1,
        targets=lambda batch: batch["targets"],
        classes=VOCABULARY if wrong else None,
    )


@bug("https://github.com/huggingface/transformers/pull/24088", cause=r"schedule")
def transformers_24088(wrong: bool) -> tuple[Task, FitConfig]:
    """The schedule is advanced once for each of 8 processes in every step: the learning rate is 0 after an eighth of
    the training."""
    steps, processes = 400, 8 if wrong else 1
    cosine = optax.cosine_decay_schedule(1.0, steps)
    return _classifier(schedule=lambda step: cosine(step * processes)), FitConfig(
        steps=steps, learning_rate=1e-2
    )


@bug("https://github.com/taesunwhang/UMS-ResSel/issues/3", cause=r"clip")
def ums_ressel_3(wrong: bool) -> Task:
    """The gradient is clipped after the update, which no longer reads it. Here clipping comes after Adam in the chain,
    so that it limits the update and not the gradient."""
    parts = [optax.clip_by_global_norm(1.0), optax.scale_by_adam()]
    parts = parts[::-1] if wrong else parts
    return _classifier(
        optimizer=lambda learning_rate: optax.chain(*parts, optax.scale_by_learning_rate(learning_rate))
    )


@bug(
    "https://github.com/workofart/ml-by-hand/pull/85",
    cause=r"bfloat16|too small|precision|rounding",
    seen_later=True,
)
def ml_by_hand_85(wrong: bool) -> tuple[Task, FitConfig]:
    """Parameters are stored in bfloat16: an update of 6e-4 to a weight of 1 is rounded away."""
    dtype = jnp.bfloat16 if wrong else jnp.float32

    def init(key: jax.Array) -> Any:
        layers = mlp(key, 5, 16, 1)
        params = {"layers": layers, "scale": jnp.ones(16), "shift": jnp.zeros(16)}
        return jax.tree.map(lambda leaf: leaf.astype(dtype), params)

    def predict(params: Any, batch: Any) -> jax.Array:
        h = jnp.tanh(apply(params["layers"][0], batch["x"].astype(dtype)))
        return apply(params["layers"][1], h * params["scale"] + params["shift"])[:, 0].astype(jnp.float32)

    task = Task(
        init=init,
        data=lambda key, step: line(key),
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
        targets=lambda batch: batch["y"],
    )
    return task, FitConfig(learning_rate=6e-4)
