"""The products of an attention have custom derivatives, equal to those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.models import _attention

HEADS, QUERIES, POSITIONS, SIZE = 2, 3, 5, 4
NAMES = ("queries", "keys", "values", "weights")
SHAPES = (
    (HEADS, QUERIES, SIZE),
    (HEADS, POSITIONS, SIZE),
    (HEADS, POSITIONS, SIZE),
    (HEADS, QUERIES, POSITIONS),
)
RANDOM = np.random.default_rng(0)
ARRAYS = {
    name: RANDOM.normal(size=shape).astype(np.float32) for name, shape in zip(NAMES, SHAPES, strict=True)
}
PRODUCTS = {
    "scores": (_attention._scores, "hqs,hps->hqp", ("queries", "keys")),
    "means": (_attention._means, "hqp,hps->hqs", ("weights", "values")),
}


def all_derivatives(product, *given: jax.Array):
    """Of a curved function of the product: tangents, gradients, second derivatives, alone and in a batch."""

    def curved(*given: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(product(*given)))

    def of_one(*given: jax.Array):
        gradient = jax.grad(curved, argnums=(0, 1))
        return jax.jvp(curved, given, given), gradient(*given), jax.jvp(gradient, given, given)

    return of_one(*given), jax.vmap(of_one)(*(jnp.stack([x, 2 * x]) for x in given))


@pytest.mark.parametrize("name", PRODUCTS)
def test_their_derivatives_are_those_of_the_plain_product(name: str):
    ours, axes, of = PRODUCTS[name]
    given = [ARRAYS[each] for each in of]
    found = jax.jit(lambda *given: all_derivatives(ours, *given))(*given)
    plain = jax.jit(lambda *given: all_derivatives(lambda *x: jnp.einsum(axes, *x), *given))(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
