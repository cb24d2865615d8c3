"""The batches of a thinker: problems, and for how long and from where it thinks about them before the steps with a
gradient.

Problems can be kept: then a share of a batch stays in the next one, with the states that it has reached. So a problem
is thought about through many batches, for hundreds of steps, and a step of training costs no more than before. (HRM and
TRM carry their states from one step of training to the next as well.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from lapwing.data.problems import Instances, Problem
from lapwing.models import Looped


class Batch(NamedTuple):
    """Problems, how long to think before the steps with a gradient, from which state (0 is that of zeros), and a random
    number for positions that are drawn. Where problems are kept, also their states, and which of them stay."""

    instances: Instances
    before: Int[Array, ""]
    start: Int[Array, ""]
    drawn: Int[Array, ""]
    state: Array | None = None
    stays: Bool[Array, " count"] | None = None


class Kept(NamedTuple):
    """The problems of the last batch, and their states before the steps with a gradient."""

    instances: Instances
    state: Array


def draw_batch(config: Any, problem: Problem, key: Key[Array, ""]) -> Batch:
    """Problems of the sizes of the training."""
    of_problems, of_share, of_steps, of_random, of_start = jax.random.split(key, 5)
    instances = problem.draw(of_problems, config.batch_size, config.size, "train", config.least)
    before = jax.random.randint(of_steps, (), 0, config.before + 1)
    at_start = jax.random.uniform(of_share) < config.from_start
    at_random = jax.random.uniform(of_random) < config.random_starts
    start = jax.random.randint(of_start, (), 1, 2**30)
    drawn = jax.random.randint(jax.random.fold_in(key, 5), (), 0, 2**30)
    return Batch(instances, jnp.where(at_start, 0, before), jnp.where(at_random, start, 0), drawn)


def with_kept(config: Any, fresh: Batch, kept: Kept, key: Key[Array, ""]) -> Batch:
    """A batch in which a share of the problems are those of the last one."""
    stays = jax.random.uniform(key, (config.batch_size,)) < config.kept
    instances = jax.tree.map(lambda old, new: _where(stays, old, new), kept.instances, fresh.instances)
    return fresh._replace(instances=instances, state=kept.state, stays=stays)


def first_kept(model: Looped, batch: Batch) -> Kept:
    """What is kept before the first batch: other problems, at the start."""
    return Kept(batch.instances, model.start(batch.instances.inputs))


def think_before(config: Any, model: Looped, batch: Batch, recalled: Any) -> Array:
    """The states from which the steps with a gradient begin."""
    start = model.start(batch.instances.inputs, batch.start if config.random_starts else 0)
    if batch.stays is not None and batch.state is not None:
        start = _where(batch.stays, batch.state, start)
    return model.think(start, recalled, batch.before)


def _where(chosen: Bool[Array, " count"], some: Array, others: Array) -> Array:
    return jnp.where(jnp.expand_dims(chosen, range(1, some.ndim)), some, others)
