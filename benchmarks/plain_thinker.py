"""The thinker as one writes it first: a Python loop over the steps, and keys and values that are concatenated and grow.

Made of Equinox's attention, norm and linear layers with the weights of a `Thinker`, so that both compute the same.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from lapwing.models import Layer, Thinker, sinusoids


class PlainLayer(eqx.Module):
    attention_norm: eqx.nn.RMSNorm
    attention: eqx.nn.MultiheadAttention
    forward_norm: eqx.nn.RMSNorm
    widen: eqx.nn.Linear
    narrow: eqx.nn.Linear

    def __call__(self, x: jax.Array, others: list[jax.Array], seen: jax.Array) -> jax.Array:
        sources = jax.vmap(self.attention_norm)(jnp.concatenate(others))
        mask = jnp.broadcast_to(seen, (len(x), len(sources)))
        x = x + self.attention(jax.vmap(self.attention_norm)(x), sources, sources, mask)
        hidden = jax.nn.gelu(jax.vmap(self.widen)(jax.vmap(self.forward_norm)(x)))
        return x + jax.vmap(self.narrow)(hidden)


class PlainThinker(eqx.Module):
    """The same function as a `Thinker` that never hides its input and has room for all steps, for one example."""

    model: Thinker
    layers: list[PlainLayer]
    readers: list[PlainLayer]

    def __init__(self, model: Thinker):
        self.model = eqx.tree_at(lambda m: (m.layers, m.readers), model, ((), ()))
        self.layers = [_plain(layer) for layer in model.layers]
        self.readers = [_plain(layer) for layer in model.readers or model.layers]

    def __call__(self, tokens: jax.Array, outputs: int) -> jax.Array:
        model = self.model
        x = model.embedding[tokens] + model.places[: len(tokens)]
        real = tokens != 0
        latents, memory = model.latents, jnp.zeros((0, model.size.width))
        for step in range(model.size.steps):
            latents = latents + sinusoids(jnp.array([step]), model.size.width)[0] * model.clock
            for layer in self.layers:
                seen = jnp.concatenate([jnp.ones(len(memory), bool), real, jnp.ones(len(latents), bool)])
                latents = layer(latents, [memory, x, latents], seen)
            memory = jnp.concatenate([memory, latents])
        answers = model.queries[:outputs]
        for layer in self.readers:
            answers = layer(answers, [memory, x], jnp.concatenate([jnp.ones(len(memory), bool), real]))
        return model.norm(answers) @ model.head + model.head_bias


def _plain(layer: Layer) -> PlainLayer:
    width, heads, _ = layer.query.shape
    key = jax.random.key(0)
    attention = eqx.nn.MultiheadAttention(heads, width, key=key)
    keys, values = layer.key_value[:, 0], layer.key_value[:, 1]
    weights = [w.reshape(width, width).T for w in (layer.query, keys, values, layer.mix)]
    attention = eqx.tree_at(
        lambda a: [a.query_proj.weight, a.key_proj.weight, a.value_proj.weight, a.output_proj.weight],
        attention,
        weights,
    )
    return PlainLayer(
        _norm(layer.attention_norm.gain),
        attention,
        _norm(layer.forward_norm.gain),
        _linear(layer.widen, layer.widen_bias, key),
        _linear(layer.narrow, None, key),
    )


def _norm(gain: jax.Array) -> eqx.nn.RMSNorm:
    return eqx.tree_at(lambda n: n.weight, eqx.nn.RMSNorm(len(gain), eps=1e-6, use_bias=False), gain)


def _linear(weight: jax.Array, bias: jax.Array | None, key: jax.Array) -> eqx.nn.Linear:
    linear = eqx.nn.Linear(*weight.shape, use_bias=bias is not None, key=key)
    if bias is not None:
        linear = eqx.tree_at(lambda each: each.bias, linear, bias)
    return eqx.tree_at(lambda each: each.weight, linear, weight.T)
