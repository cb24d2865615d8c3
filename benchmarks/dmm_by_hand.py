"""DMM Lite written by hand, for this one machine, on dense arrays: the rival of the compiler.

All fields hold all ten keys, one matrix product per cycle, the gradient by `jax.grad` of `jax.lax.scan`. It reproduces
the published losses, as the compiled machine does.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import dmm

KEYS = (":number", *sorted(set("test string.")))
INNER = ("accum", "norm", "dot", "compare")
READS = {
    "accum": ("dict-1", "dict-2"),
    "norm": ("dict",),
    "dot": ("dict-1", "dict-2"),
    "compare": ("dict-1", "dict-2"),
}
WRITES = {"accum": ("dict",), "norm": ("norm",), "dot": ("dot",), "compare": ("true", "false")}
SOURCES = [("input", "char"), ("const_1", "const_1"), ("eos", "char")]


def fields(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(f"{kind}-{k}", field) for kind in INNER for field in table[kind] for k in range(1, 6)]


def answers_of(
    machine: dmm.Machine, cycles: int, governor: float = 100.0
) -> Callable[[jax.Array], jax.Array]:
    """A function from the weights of the machine's links, in order, to its answers."""
    rows = {field: i for i, field in enumerate([*fields(READS), ("output", "dict-1"), ("output", "dict-2")])}
    columns = {field: i for i, field in enumerate([*fields(WRITES), *SOURCES])}
    links = [(link, i) for i, link in enumerate(machine.links())]
    live = [
        (rows[link.to, link.to_field], columns[link.source, link.source_field], i)
        for link, i in links
        if (link.to, link.to_field) in rows and (link.source, link.source_field) in columns
    ]
    to, source, place = np.array(live).T
    text = jnp.asarray(_text(cycles))

    def cycle(matrix: jax.Array, state: jax.Array, characters: jax.Array) -> tuple[jax.Array, jax.Array]:
        given = matrix @ state
        memory, change, normed, left, right, first, second = (given[5 * i : 5 * i + 5] for i in range(7))
        dot = jnp.sum(left * right, axis=1)
        dot = jnp.where(jnp.abs(dot) > governor, jax.lax.stop_gradient(governor * jnp.sign(dot)), dot)
        difference = first[:, 0] - second[:, 0]
        numbers = [jnp.max(jnp.abs(normed), axis=1), dot, jax.nn.relu(difference), jax.nn.relu(-difference)]
        inner = jnp.pad(jnp.concatenate(numbers)[:, None], ((0, 0), (0, len(KEYS) - 1)))
        return jnp.concatenate([jax.lax.stop_gradient(memory) + change, inner, characters]), given[35:, 0]

    def answers(weights: jax.Array) -> jax.Array:
        matrix = jnp.zeros((len(rows), len(columns))).at[to, source].set(weights[place])
        start = jnp.zeros((len(columns), len(KEYS)))
        return jax.lax.scan(lambda state, x: cycle(matrix, state, x), start, text)[1]

    return answers


def _text(cycles: int) -> np.ndarray:
    """The outputs of input, const_1 and eos after each cycle."""
    text = "test string."
    shown = np.zeros((cycles, 3, len(KEYS)), np.float32)
    for cycle in range(0, cycles, 10):
        shown[cycle, 0, KEYS.index(text[min(cycle // 10, len(text) - 1)])] = 1
    shown[:, 1, 0] = 1
    shown[:, 2, KEYS.index(".")] = 1
    return shown


def lite_loss(
    answers: Callable[[jax.Array], jax.Array], targets: jax.Array, soft: np.ndarray
) -> Callable[..., Any]:
    """Squared errors and the published regularization, of either version."""

    def loss(weights: jax.Array) -> jax.Array:
        trained = jnp.where(soft, weights, 0.0)
        return jnp.sum((answers(weights) - targets) ** 2) + jnp.sum(jnp.abs(trained) + 10 * trained**2)

    return loss
