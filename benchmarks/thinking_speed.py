"""A step of a thinker's training against the same network as one would write it plainly, with the same weights.

    python -m benchmarks.thinking_speed

Plainly: `jax.lax.scan`, convolutions of the state and the embedded input together, in every step, thinking before
included; the same loss, the same numbers. A second rival is the network of Lapwing itself, its convolutions written as
products, with `jax.lax.scan`. Where PyTorch is installed, it is a third (benchmarks/thinking_torch.py). All take turns
in one process; medians.
"""

import argparse
import functools
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.bench.measure import alternate, environment, save
from lapwing.experiments.thinker import Config, build, cross_entropy
from lapwing.models import Looped

CASES: dict[str, dict[str, Any]] = {
    "addition": {},
    "prefix_sums": {"problem": "prefix_sums"},
    "maze": {"problem": "maze"},
}


def plain_loss(config: Config, model: Looped, batch: Any) -> jax.Array:
    """The loss of the experiment, written plainly."""
    block: Any = model.block
    inputs = batch.instances.inputs
    axes = len(inputs.shape) - 2
    x = jnp.sum(jnp.stack([table[inputs[..., at]] for at, table in enumerate(model.embeddings)]), axis=0)
    letters = "DHW"[-axes:]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    kernel = functools.partial(jnp.reshape, shape=(*[3] * axes, -1, block.of_state.shape[1]))
    first = jnp.concatenate([kernel(block.of_state), kernel(block.of_input)], axis=-2)
    second = block.narrow.reshape(*[3] * axes, -1, x.shape[-1])

    def convolved(value: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(value, weights, (1,) * axes, "SAME", dimension_numbers=numbers)

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        hidden = jax.nn.gelu(convolved(jnp.concatenate([state, x], axis=-1), first) + block.bias)
        state = state + convolved(hidden, second) + block.narrow_bias
        size = jnp.mean(state**2, axis=-1, keepdims=True)
        state = state * jax.lax.rsqrt(size + 1e-6) * model.norm.gain
        return state, state

    start = jnp.zeros((*inputs.shape[:-1], x.shape[-1]))
    before = jax.lax.stop_gradient(
        jax.lax.fori_loop(0, batch.before, lambda _, state: step(state, None)[0], start)
    )
    _, states = jax.lax.scan(step, before, None, length=config.gradient_steps)
    last = states[-config.loss_steps :]
    logits = jax.nn.gelu(last @ model.widen) @ model.head
    return cross_entropy(logits, batch.instances.targets)


def by_lax_scan(config: Config, model: Looped, batch: Any) -> jax.Array:
    """The loss of the experiment, with jax's own loop."""
    inputs = batch.instances.inputs
    recalled = model.recall(inputs)

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        state = model.step(state, recalled)
        return state, state

    before = model.think(model.start(inputs), recalled, batch.before)
    _, states = jax.lax.scan(step, before, None, length=config.gradient_steps)
    return cross_entropy(model.logits(states[-config.loss_steps :]), batch.instances.targets)


def measure(name: str, rounds: int) -> dict[str, Any]:
    config = Config(**CASES[name])
    task = build(config)
    model = task.init(jax.random.key(0))
    batch = jax.jit(lambda key: task.data(key, 0))(jax.random.key(1))
    batch = batch._replace(before=jnp.asarray(config.before // 2))
    ours = jax.jit(jax.value_and_grad(lambda model, batch: task.loss(model, batch)[0]))
    plain = jax.jit(jax.value_and_grad(functools.partial(plain_loss, config)))
    theirs = jax.jit(jax.value_and_grad(functools.partial(by_lax_scan, config)))
    rivals = {
        "plain": lambda: plain(model, batch),
        "products, lax.scan": lambda: theirs(model, batch),
        "lapwing": lambda: ours(model, batch),
    }
    (a, da), (b, db) = ours(model, batch), plain(model, batch)
    losses, differences = {"lapwing": float(a), "plain": float(b)}, {"plain": _difference(da, db)}
    if importlib.util.find_spec("torch"):
        from . import thinking_torch as torch

        rivals["torch"] = torch.rival(model, batch, config.gradient_steps, config.loss_steps)
        loss, gradient = rivals["torch"]()
        losses["torch"] = float(loss)
        found = {name: each.cpu().numpy() for name, each in gradient.items()}
        differences["torch"] = _difference(torch.weights_of(da), found)
    times = alternate(rivals, rounds=rounds, seconds=60.0)
    return {
        "case": name,
        "ms": {key: 1e3 * value for key, value in times.items()},
        "loss": losses,
        "largest difference of a gradient": differences,
        "times faster": {key: times[key] / times["lapwing"] for key in times if key != "lapwing"},
    }


def _difference(ours: Any, theirs: Any) -> float:
    """The largest difference, in units of the largest number of an array."""
    each = jax.tree.map(lambda x, y: jnp.max(jnp.abs(x - y)) / (jnp.max(jnp.abs(y)) + 1e-9), ours, theirs)
    return float(max(jax.tree.leaves(each)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    rows = []
    for name in CASES:
        rows.append(measure(name, options.rounds))
        print(rows[-1], flush=True)
    save({"environment": environment(), "table": rows}, "thinking-speed", options.out)


if __name__ == "__main__":
    main()
