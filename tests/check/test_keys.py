"""Random keys that draw twice, and keys that are used as they should be. Nothing is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lapwing.check import CheckError, keys, workers

KEY = jax.random.key(0)


def halves_of_two_splits(key: Any) -> Any:
    first, second = jax.random.split(key)[0], jax.random.split(key)[0]
    return jax.random.normal(first, (3,)), jax.random.normal(second, (3,))


def old_keys(key: Any) -> Any:
    old = jax.random.PRNGKey(0)
    return jax.random.normal(old, (2,)) + jax.random.uniform(old, (2,))


def two_layers(key: Any) -> Any:
    return eqx.filter([eqx.nn.Linear(3, 3, key=key), eqx.nn.Linear(3, 2, key=key)], eqx.is_array)


def folded_by_the_same_number(key: Any) -> Any:
    return [jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5, (3,)) for _ in range(2)]


def every_step(key: Any) -> Any:
    return jax.lax.scan(lambda h, _: (h + jax.random.normal(key, ()), None), 0.0, length=3)


def every_step_of_a_split(key: Any) -> Any:
    part = jax.random.split(key)[1]
    return jax.lax.fori_loop(0, 4, lambda i, h: h * jax.random.uniform(part, ()), jnp.ones(()))


@pytest.mark.parametrize("function", [halves_of_two_splits, old_keys, two_layers, folded_by_the_same_number])
def test_a_key_that_draws_twice_is_found(function: Any):
    with pytest.raises(
        CheckError, match=r"one random key draws twice, at test_keys.py:\d+ and at test_keys.py:\d+"
    ):
        keys(function, KEY)


@pytest.mark.parametrize("function", [every_step, every_step_of_a_split])
def test_a_key_that_every_step_of_a_loop_uses_is_found(function: Any):
    with pytest.raises(CheckError, match=r"every step of a loop draws with the same key at test_keys.py:\d+"):
        keys(function, KEY)


def own_of_each_step(key: Any) -> Any:
    parts = jax.random.split(key, 3)
    return jax.lax.scan(lambda h, part: (h + jax.random.normal(part, ()), None), 0.0, parts)


def folded_by_the_step(key: Any) -> Any:
    def step(h: Any, i: Any) -> Any:
        return h + jax.random.normal(jax.random.fold_in(key, i), ()), None

    return jax.lax.scan(step, 0.0, jnp.arange(3))


def either_branch(key: Any) -> Any:
    draws = [lambda: jax.random.normal(key, ()), lambda: jax.random.uniform(key, ())]
    return jax.lax.cond(True, *draws)


def carried(key: Any) -> Any:
    def step(key: Any, _: Any) -> Any:
        key, used = jax.random.split(key)
        return key, jax.random.normal(used, ())

    return jax.lax.scan(step, key, length=3)[1]


def distributions(key: Any) -> Any:
    parts = iter(jax.random.split(key, 9))
    return (
        jax.random.gamma(next(parts), 2.0, (3,)),
        jax.random.permutation(next(parts), 5),
        jax.random.categorical(next(parts), jnp.ones((2, 3))),
        jax.random.truncated_normal(next(parts), -1, 1, (3,)),
        jax.random.orthogonal(next(parts), 3),
        jax.random.randint(next(parts), (3,), 0, 5),
        jax.random.choice(next(parts), 5, (3,)),
        jax.vmap(lambda part: jax.random.normal(part, (2,)))(jax.random.split(next(parts), 4)),
    )


def of_equinox(key: Any) -> Any:
    return eqx.filter(eqx.nn.MLP(3, 2, 4, 2, key=key), eqx.is_array)


def of_flax(key: Any) -> Any:
    rngs = nnx.Rngs(key)
    return nnx.to_pure_dict(nnx.state([nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)], nnx.Param))


@pytest.mark.parametrize(
    "function",
    [own_of_each_step, folded_by_the_step, either_branch, carried, distributions, of_equinox, of_flax],
)
def test_keys_that_are_used_once_pass(function: Any):
    keys(function, KEY)


def test_workers_with_one_seed_are_found():
    def batches(seed: int) -> Any:
        random = np.random.default_rng(seed)
        return (random.normal(size=(4, 3)) for _ in range(5))

    workers(batches, 3)
    with pytest.raises(CheckError, match="workers 0 and 1 read the same batch 0"):
        workers(lambda worker: batches(7), 3)
    with pytest.raises(CheckError, match="workers 0 and 1 read the same batch: batch 1 is batch 0"):
        workers(lambda worker: list(batches(7))[worker:])
