"""A machine as one loop over one flat vector of leaves: works for every machine, whatever it rewrites while it runs.

The vector holds every output leaf that can matter, with the matrix and the mixes. A cycle gathers the two factors of
every term (a weight, which may itself be a leaf, and a source), sums the products into the input leaves, and runs each
kind of neuron once, vmapped over the neurons of that kind. Machines with a constant matrix are compiled by the faster
`_compile_stages`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.loops import scan
from lapwing.trees import NUMBER

from ._activation import Activation
from ._keys import nested_path
from ._layout import Leaf
from ._layout_flow import Flow, Key, Traced, live_leaves
from ._neuron import FUNCTION

Run = Callable[[jax.Array], tuple[jax.Array, jax.Array, jax.Array]]


def flat_run(flow: Flow, cycles: int) -> Run:
    """The function from the values of a machine to its answers [cycles, fields], the watched leaves [cycles, leaves],
    and the number of neurons that came to be [cycles]."""
    groups = _groups(flow)
    written = [(name, *key) for traced, names in groups for name in names for key in traced.outputs]
    alive = {name for _, names in groups for name in names}
    state = list(dict.fromkeys([*written, *(leaf for leaf in flow.initial if leaf[0] in alive)]))
    read = [(name, *key) for traced, names in groups for name in names for key in traced.inputs]
    mixes = [leaves for leaves in flow.born.values() if leaves]
    inputs = list(dict.fromkeys([*read, *flow.answers.values(), *chain(*mixes)]))
    weigh_and_sum = _down_stroke(flow, state, inputs)
    answers = np.array([inputs.index(leaf) for leaf in flow.answers.values()], int)
    watched = np.array([state.index(leaf) for leaf in flow.watched], int)
    mixed = [np.array([inputs.index(leaf) for leaf in leaves], int) for leaves in mixes]
    started = [leaf for leaf in state if leaf in flow.initial]
    start_targets = np.array([state.index(leaf) for leaf in started], int)
    start_values = np.array([flow.initial[leaf] for leaf in started], int)
    functions = [(_on_vectors(traced), len(names), len(traced.inputs)) for traced, names in groups]

    def up_stroke(given: jax.Array) -> jax.Array:
        parts, first = [jnp.zeros(0, given.dtype)], 0
        for function, neurons, size in functions:
            rows = given[first : first + neurons * size].reshape(neurons, size)
            parts.append(jax.vmap(function, axis_size=neurons)(rows).reshape(-1))
            first += neurons * size
        made = jnp.concatenate(parts)
        # Leaves that only have an initial value are zero after the first cycle.
        return jnp.pad(made, (0, len(state) - len(made)))

    def count_born(given: jax.Array) -> jax.Array:
        return sum((jnp.any(given[mix] != 0).astype(int) for mix in mixed), jnp.zeros((), int))

    def run(values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        outputs = jnp.zeros(len(state), values.dtype).at[start_targets].set(values[start_values])

        def cycle(outputs: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
            given = weigh_and_sum(values, outputs)
            made = up_stroke(given)
            return made, (given[answers], made[watched], count_born(given))

        _, (found, seen, born) = scan(cycle, outputs, None, length=cycles)
        every = jnp.zeros((cycles, len(flow.fields)), values.dtype)
        every = every.at[:, np.array(list(flow.answers), int)].set(found)
        if mixed:
            too_many = jnp.cumsum(born > flow.machine.capacity)[:, None] > 0
            every, seen = (jnp.where(too_many, jnp.nan, x) for x in (every, seen))
        return every, seen, born

    return run


def _groups(flow: Flow) -> list[tuple[Traced, list[str]]]:
    """The neurons with a live output, by kind."""
    live = {leaf[0] for leaf in live_leaves(flow)[1]}
    found: dict[int, list[str]] = defaultdict(list)
    for name in sorted(live):
        found[id(flow.traced[name])].append(name)
    return [(flow.traced[names[0]], names) for names in found.values()]


def _down_stroke(flow: Flow, state: list[Leaf], inputs: list[Leaf]) -> Callable[[Any, Any], jax.Array]:
    """The function from values and output leaves to the input leaves."""
    indices = {leaf: i for i, leaf in enumerate(state)}
    targets, weights, sources = [], [], []
    for target, leaf in enumerate(inputs):
        for (kind, where), source in flow.terms[leaf]:
            if source in indices:
                targets.append(target)
                weights.append(where if kind == "value" else len(flow.paths) + indices[where])
                sources.append(indices[source])
    into, by, of = (np.array(index, int) for index in (targets, weights, sources))

    def down(values: jax.Array, outputs: jax.Array) -> jax.Array:
        products = jnp.concatenate([values, outputs])[by] * outputs[of]
        return jnp.zeros(len(inputs), values.dtype).at[into].add(products, indices_are_sorted=True)

    return down


def _on_vectors(traced: Traced) -> Callable[[jax.Array], jax.Array]:
    """The neuron's function, from a vector of input leaves to one of output leaves."""
    neuron = traced.neuron
    indices = {key: i for i, key in enumerate(traced.outputs)}
    mix = {path: i for i, (field, path) in enumerate(traced.inputs) if neuron.fluid and field == FUNCTION}
    mixes = {path[0]: i for path, i in mix.items() if set(path[1:]) <= {NUMBER}}
    functions = [f for f in neuron.functions if not neuron.fluid or f.name in mixes]
    parts = [_part(function, traced, indices) for function in functions]
    written = frozenset(path for field, path in indices if field == FUNCTION)
    kept = [(indices[FUNCTION, nested_path(path, written)], i) for path, i in mix.items()]

    def function(row: jax.Array) -> jax.Array:
        made = jnp.zeros(len(indices), row.dtype)
        for f, (targets, part) in zip(functions, parts, strict=True):
            made = made.at[targets].add(part(row) * row[mixes[f.name]] if neuron.fluid else part(row))
        for target, source in kept:
            made = made.at[target].set(row[source])
        return made

    return function


Part = tuple[np.ndarray, Callable[[jax.Array], jax.Array]]  # indices of output leaves, and their function


def _part(function: Activation, traced: Traced, indices: Mapping[Key, int]) -> Part:
    is_sum = function.accumulator and not traced.nests_numbers
    return (_sums if is_sum else _leaf_by_leaf)(function, traced, indices)


def _sums(function: Activation, traced: Traced, indices: Mapping[Key, int]) -> Part:
    """An accumulator may hold the whole matrix, so it is one sum of vectors and not one operation per link."""
    given = [
        {path: i for i, (field, path) in enumerate(traced.inputs) if field == name}
        for name in function.inputs
    ]
    keys = [
        path
        for field, path in indices
        if field == function.outputs[0] and any(path in some for some in given)
    ]
    nothing = len(traced.inputs)
    memory, change = (np.array([some.get(path, nothing) for path in keys], int) for some in given)

    def add(row: jax.Array) -> jax.Array:
        padded = jnp.pad(row, (0, 1))
        kept = padded[memory]
        return (jax.lax.stop_gradient(kept) if function.truncated else kept) + padded[change]

    return np.array([indices[function.outputs[0], path] for path in keys], int), add


def _leaf_by_leaf(function: Activation, traced: Traced, indices: Mapping[Key, int]) -> Part:
    shapes = jax.eval_shape(lambda row: _on_trees(function, traced, row), jnp.zeros(len(traced.inputs)))

    def call(row: jax.Array) -> jax.Array:
        leaves = [jnp.asarray(leaf, row.dtype) for leaf in _on_trees(function, traced, row).values()]
        return jnp.stack(leaves) if leaves else jnp.zeros(0, row.dtype)

    fields = {field: frozenset(path for name, path in indices if name == field) for field in function.outputs}
    targets = [indices[field, nested_path(path, fields[field])] for field, path in shapes]
    return np.array(targets, int), call


def _on_trees(function: Activation, traced: Traced, row: jax.Array) -> dict[Key, Any]:
    given: dict[str, dict[Any, Any]] = {field: {} for field in function.inputs}
    for i, (field, path) in enumerate(traced.inputs):
        if field in given:
            given[field][path] = row[i]
    outputs = function({field: trees.from_paths(leaves) for field, leaves in given.items()})
    return {(path[0], path[1:]): leaf for path, leaf in trees.paths(outputs).items()}
