"""A machine as one loop over one flat vector of leaves: right for every machine, whatever it rewrites while
it runs.

The vector holds every output leaf that can matter, the matrix and the mixes among them. A cycle gathers the
two factors of every term (a weight, which may itself be a leaf, and a source), sums the products into the
input leaves, and runs each kind of neuron once, vmapped over the neurons of that kind. Machines whose matrix
stands still take the faster way of `_compile_stages`.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.loops import scan

from ._layout import Leaf
from ._layout_flow import Flow, Traced, live_leaves

Run = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def flat_run(flow: Flow, cycles: int) -> Run:
    """The function from the values of a machine to its answers, [cycles, fields of the output neuron], and to the
    watched leaves, [cycles, leaves]."""
    groups = _groups(flow)
    written = [(name, *key) for traced, names in groups for name in names for key in traced.outputs]
    alive = {name for _, names in groups for name in names}
    state = list(dict.fromkeys([*written, *(leaf for leaf in flow.initial if leaf[0] in alive)]))
    read = [(name, *key) for traced, names in groups for name in names for key in traced.inputs]
    inputs = list(dict.fromkeys([*read, *flow.answers.values()]))
    weigh_and_sum = _down_stroke(flow, state, inputs)
    answers = np.array([inputs.index(leaf) for leaf in flow.answers.values()], int)
    watched = np.array([state.index(leaf) for leaf in flow.watched], int)
    started = [leaf for leaf in state if leaf in flow.initial]
    start_places = np.array([state.index(leaf) for leaf in started], int)
    start_values = np.array([flow.initial[leaf] for leaf in started], int)
    functions = [(_on_vectors(traced), len(names), len(traced.inputs)) for traced, names in groups]

    def up_stroke(given: jax.Array) -> jax.Array:
        parts, first = [jnp.zeros(0, given.dtype)], 0
        for function, neurons, size in functions:
            rows = given[first : first + neurons * size].reshape(neurons, size)
            parts.append(jax.vmap(function, axis_size=neurons)(rows).reshape(-1))
            first += neurons * size
        made = jnp.concatenate(parts)
        # What only the start gave is gone after the first cycle.
        return jnp.pad(made, (0, len(state) - len(made)))

    def run(values: jax.Array) -> tuple[jax.Array, jax.Array]:
        outputs = jnp.zeros(len(state), values.dtype).at[start_places].set(values[start_values])

        def cycle(outputs: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            given = weigh_and_sum(values, outputs)
            made = up_stroke(given)
            return made, (given[answers], made[watched])

        _, (found, seen) = scan(cycle, outputs, None, length=cycles)
        every = jnp.zeros((cycles, len(flow.fields)), values.dtype)
        return every.at[:, np.array(list(flow.answers), int)].set(found), seen

    return run


def _groups(flow: Flow) -> list[tuple[Traced, list[str]]]:
    """The neurons that have a live output, by kind."""
    live = {leaf[0] for leaf in live_leaves(flow)[1]}
    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted(live):
        found[id(flow.traced[name])].append(name)
    return [(flow.traced[names[0]], names) for names in found.values()]


def _down_stroke(flow: Flow, state: list[Leaf], inputs: list[Leaf]) -> Callable[[Any, Any], jax.Array]:
    """The function from values and output leaves to the input leaves."""
    places = {leaf: i for i, leaf in enumerate(state)}
    targets, weights, sources = [], [], []
    for target, leaf in enumerate(inputs):
        for (kind, where), source in flow.terms[leaf]:
            if source in places:
                targets.append(target)
                weights.append(where if kind == "value" else len(flow.paths) + places[where])
                sources.append(places[source])
    into, by, of = (np.array(index, int) for index in (targets, weights, sources))

    def down(values: jax.Array, outputs: jax.Array) -> jax.Array:
        products = jnp.concatenate([values, outputs])[by] * outputs[of]
        return jnp.zeros(len(inputs), values.dtype).at[into].add(products, indices_are_sorted=True)

    return down


def _on_vectors(traced: Traced) -> Callable[[jax.Array], jax.Array]:
    """The neuron's function from the vector of its input leaves to that of its output leaves."""

    def function(row: jax.Array) -> jax.Array:
        given: dict[str, dict[Any, Any]] = {field: {} for field in traced.neuron.inputs}
        for i, (field, path) in enumerate(traced.inputs):
            given[field][path] = row[i]
        outputs = traced.neuron({field: trees.from_paths(leaves) for field, leaves in given.items()})
        leaves = list(trees.paths(outputs).values())
        return (
            jnp.stack([jnp.asarray(leaf, row.dtype) for leaf in leaves])
            if leaves
            else jnp.zeros(0, row.dtype)
        )

    return function
