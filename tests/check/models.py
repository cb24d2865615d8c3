"""Small real models, each right and with a planted mistake from a lab journal (docs/story.md)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def tokens(examples: int = 4, length: int = 6, kinds: int = 11) -> np.ndarray:
    return np.random.default_rng(1).integers(0, kinds, (examples, length))


def transformer_params(kinds: int = 11, width: int = 8, length: int = 6) -> dict[str, Any]:
    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(random.normal(size=shape), jnp.float32)

    random = np.random.default_rng(0)
    return {
        **{name: normal(width, width) / width**0.5 for name in "qkvo"},
        "embed": normal(kinds, width),
        "place": 0.1 * normal(length, width),
        "out": normal(width, kinds) / width**0.5,
    }


def transformer(
    params: dict[str, Any], words: Any, *, swapped: bool = False, causal: bool = True, mask_first: bool = True
) -> jax.Array:
    """A post-LN transformer of one layer. Swapped, it takes (batch, sequence) for (sequence, batch)."""
    x = params["embed"][words] + params["place"]
    if swapped:
        x = x.swapaxes(0, 1)
    q, k, v = (x @ params[name] for name in "qkv")
    scores = jnp.einsum("bth,bsh->bts", q, k) / q.shape[-1] ** 0.5
    later = jnp.triu(jnp.ones(scores.shape[1:], bool), k=1 if mask_first else 2)
    scores = jnp.where(later, -1e9, scores) if causal else scores
    mixed = jnp.einsum("bts,bsh->bth", jax.nn.softmax(scores), v) @ params["o"]
    x = _layer_norm(x + mixed)
    if swapped:
        x = x.swapaxes(0, 1)
    return x @ params["out"]


def _layer_norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def pgd(weights: jax.Array, images: jax.Array, *, best_outside: bool) -> jax.Array:
    """Three steps of ascent for each image; initialized outside the loop, the best is carried to the next image."""

    def loss(image: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(weights @ image))

    def attack(best: Any, image: jax.Array) -> Any:
        def ascend(carry: Any, _: Any) -> Any:
            image, best = carry
            image = image + 0.1 * jnp.sign(jax.grad(loss)(image))
            better = loss(image) > best[0]
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), (loss(image), image), best)
            return (image, best), None

        start = best if best_outside else (-jnp.inf, image)
        (_, best), _ = jax.lax.scan(ascend, (image, start), length=3)
        return best, best[1]

    return jax.lax.scan(attack, (-jnp.inf, images[0]), images)[1]


@jax.custom_vjp
def held(memory: jax.Array) -> jax.Array:
    """The content of an accumulator, with a derivative that drops it."""
    return memory


held.defvjp(lambda memory: (memory, None), lambda _, slope: (jnp.zeros_like(slope),))


def accumulator_loss(params: dict[str, Any], xs: jax.Array, *, cut: bool) -> jax.Array:
    """The error of a machine with one accumulator that sums its inputs."""

    def step(memory: jax.Array, x: jax.Array) -> Any:
        memory = (held(memory) if cut else memory) + params["read"] * x
        return memory, params["gain"] * memory

    _, answers = jax.lax.scan(step, params["start"], xs)
    return jnp.mean((answers - 1.0) ** 2)


def accumulator_params() -> dict[str, Any]:
    return {"read": jnp.array([0.5, -0.3]), "gain": jnp.array([1.0, 0.7]), "start": jnp.array([0.2, 0.1])}
