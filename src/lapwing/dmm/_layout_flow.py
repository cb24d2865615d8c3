"""What depends on what in a machine, leaf by leaf: the facts that the compiler plans with.

- An output of a function depends on some of its inputs only (`true` of compare on two numbers, a key of accum on that
  key of its inputs): read off the function's jaxpr.
- A leaf is *invariant* if every cycle passes it on unchanged, by a fixed link of weight 1 from itself to itself. The
  matrix of a machine that could modify itself but does not is invariant, and so are the mixes of its fluid neurons:
  parameters, not state.
- A neuron is *known* if nothing trained can reach it: a timer, the input text, constants. Its outputs are data.
- A leaf is *live* if an answer depends on it.

Invariant and known are greatest fixed points: assume them of everything, and strike out what contradicts that until
nothing more does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from lapwing import trees
from lapwing.jaxprs import dependencies
from lapwing.trees import NUMBER, Path

from ._keys import nested_path, place
from ._layout import Field, Layout, Leaf, empty_tree, kind_of, lay_out, parts_of
from ._machine import Machine
from ._neuron import FUNCTION, Neuron
from ._trace import check_laws, trace

Key = tuple[str, Path]  # a field of one neuron, and a key in it
Weight = tuple[str, Any]  # ("value", its index among the values) or ("leaf", the output leaf that holds it)


@dataclass(frozen=True)
class Traced:
    """A neuron's function on all keys that can occur, as a jaxpr of scalars."""

    neuron: Neuron
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    jaxpr: core.Jaxpr
    depends: Mapping[Key, frozenset[Key]]
    nests_numbers: bool  # whether a number that it returns moves to ":number", since it may meet a tree


@dataclass(frozen=True)
class Flow:
    """A machine's leaves and what they depend on."""

    machine: Machine
    layout: Layout
    paths: tuple[Path, ...]  # of all leaves of machine.values, in order
    traced: Mapping[str, Traced]
    terms: Mapping[Leaf, list[tuple[Weight, Leaf]]]  # input leaf -> what is summed into it
    initial: Mapping[Leaf, int]  # output leaf -> its index among the values
    invariant: frozenset[Leaf]
    known: frozenset[str]
    fields: tuple[str, ...]  # of the output neuron
    watched: tuple[Leaf, ...]  # output leaves to return besides the answers

    @property
    def answers(self) -> dict[int, Leaf]:
        """The input leaves that are the machine's answers, by field of the output neuron; one that is always 0 is left
        out."""
        numbers = {
            field: path
            for (name, field), paths in self.layout.inputs.items()
            for path in paths
            if name == self.machine.output and not place(path)
        }
        return {
            i: (self.machine.output, field, numbers[field])
            for i, field in enumerate(self.fields)
            if field in numbers
        }

    def leaf(self, index: int) -> float:
        """The machine's value at this index."""
        return _value(self.machine, self.paths[index])

    @property
    def born(self) -> dict[str, list[Leaf]]:
        """The neurons that can come to be during a run (`unfold`), and the input leaves that hold their mix."""
        newborn = self.machine.newborn
        return {
            name: [
                (name, FUNCTION, path)
                for path in self.layout.inputs.get((name, FUNCTION), ())
                if path[0] in newborn.names and set(path[1:]) <= {NUMBER}
            ]
            for name, neuron in self.machine.neurons.items()
            if newborn is not None and neuron is newborn
        }

    @property
    def is_static(self) -> bool:
        """Whether no link and no mix changes during a run."""
        return all(leaf in self.invariant for leaf in rewritable(self.machine, self.layout))


def analyse(machine: Machine, watch: Iterable[Field] = ()) -> Flow:
    layout = lay_out(machine)
    reads = machine.neurons[machine.output].inputs if machine.output in machine.neurons else ()
    fields = tuple(field for field in reads if field != FUNCTION)
    watched = tuple((*field, path) for field in watch for path in layout.outputs.get(field, ()))
    paths = tuple(trees.paths(machine.values))
    traced = _trace_all(machine, layout)
    indices = {path: i for i, path in enumerate(paths)}
    terms = _terms(machine, layout, indices)
    initial = _initial(layout, indices)
    invariant = _invariant(machine, layout, traced, terms, initial, paths)
    known = _known(machine, layout, paths)
    return Flow(machine, layout, paths, traced, terms, initial, invariant, known, fields, watched)


def rewritable(machine: Machine, layout: Layout) -> list[Leaf]:
    """The output leaves that hold links or mixes."""
    fields = [(name, FUNCTION) for name, neuron in machine.neurons.items() if neuron.fluid]
    if machine.matrix_from is not None:
        fields.append(machine.matrix_from)
    return [(*field, path) for field in fields for path in layout.outputs.get(field, ())]


def live_leaves(flow: Flow) -> tuple[set[Leaf], set[Leaf]]:
    """The input and the output leaves on which an answer, a watched leaf or the number of neurons depends, those that
    hold a weight too."""
    inputs: set[Leaf] = set()
    outputs: set[Leaf] = set()
    mixes = [leaf for leaves in flow.born.values() for leaf in leaves]
    waiting_inputs, waiting_outputs = {*flow.answers.values(), *mixes}, set(flow.watched)
    while waiting_inputs or waiting_outputs:
        inputs |= waiting_inputs
        outputs |= waiting_outputs
        terms = [term for leaf in waiting_inputs for term in flow.terms[leaf]]
        sources = {source for _, source in terms} | {where for (kind, where), _ in terms if kind == "leaf"}
        waiting_inputs = {
            (name, *key)
            for name, field, path in waiting_outputs
            for key in flow.traced[name].depends.get((field, path), ())
        } - inputs
        waiting_outputs = sources - outputs
    return inputs, outputs


def _trace_all(machine: Machine, layout: Layout) -> dict[str, Traced]:
    cache: dict[Any, Traced] = {}
    found = {}
    for name, neuron in machine.neurons.items():
        read = tuple((field, layout.inputs.get((name, field), ())) for field in neuron.inputs)
        written = tuple((field, layout.outputs.get((name, field), ())) for field in neuron.outputs)
        signature = (kind_of(neuron), read, written)
        if signature not in cache:
            cache[signature] = _traced(neuron, dict(read), dict(written))
        found[name] = cache[signature]
    return found


def _traced(
    neuron: Neuron, read: Mapping[str, tuple[Path, ...]], written: Mapping[str, tuple[Path, ...]]
) -> Traced:
    tree = empty_tree(read.items())
    closed, shapes = trace(neuron, tree)
    jaxpr = closed.jaxpr
    keys = {field: frozenset(paths) for field, paths in written.items()}
    inputs, returned = _keys(tree), _keys(shapes)
    check_laws(neuron, inputs)
    outputs = tuple((field, nested_path(path, keys[field])) for field, path in returned)
    key_of = dict(zip(jaxpr.invars, inputs, strict=True))
    depends = {
        key: frozenset(key_of[var] for var in variables if var in key_of)
        for key, variables in zip(outputs, dependencies(jaxpr), strict=True)
    }
    kept = all(
        (f.outputs[0], path) in depends
        for f in neuron.functions
        if f.accumulator
        for field, path in inputs
        if field in f.inputs
    )
    return Traced(neuron, inputs, outputs, jaxpr, depends, outputs != returned or not kept)


def _keys(tree: trees.Tree) -> tuple[Key, ...]:
    """The leaves of a dict of fields, in the order in which jax flattens it."""
    return tuple((path[0], path[1:]) for path in trees.paths(tree))


def _terms(
    machine: Machine, layout: Layout, indices: Mapping[Path, int]
) -> dict[Leaf, list[tuple[Weight, Leaf]]]:
    found: dict[Leaf, list[tuple[Weight, Leaf]]] = defaultdict(list)
    keys = {field: frozenset(paths) for field, paths in layout.inputs.items()}

    def weight(path: Path) -> Weight:
        held_in = machine.matrix_from
        return ("value", indices["matrix", *path]) if held_in is None else ("leaf", (*held_in, path))

    for (to, source), at in layout.links.items():
        for path in layout.outputs[source]:
            found[(*to, nested_path(path, keys[to]))].append((weight(at), (*source, path)))
    for (to, source), at in layout.deep.items():
        for path, rest in parts_of(source, layout.outputs):
            leaf = (source[0], source[1], path)
            found[(*to, nested_path(rest, keys[to]))].append((weight(at), leaf))
    return dict(found)


def _initial(layout: Layout, indices: Mapping[Path, int]) -> dict[Leaf, int]:
    found = {}
    keys = {field: frozenset(paths) for field, paths in layout.outputs.items()}
    for path, index in indices.items():
        if path[0] == "outputs":
            field = (path[1], path[2])
            found[(*field, nested_path(path[3:] or (NUMBER,), keys[field]))] = index
    return found


def _invariant(machine, layout, traced, terms, initial, paths) -> frozenset[Leaf]:
    fixed = {leaf: _value(machine, paths[i]) for leaf, i in initial.items() if paths[i] in machine.hard}
    invariant = {leaf for leaf in rewritable(machine, layout) if leaf in initial}

    def constant(weight: Weight) -> float | None:
        kind, where = weight
        if kind == "value":
            return _value(machine, paths[where]) if paths[where] in machine.hard else None
        return fixed.get(where) if where in invariant else None

    def passed(leaf: Leaf) -> Leaf | None:
        """The output leaf that an input leaf is a copy of."""
        summed = terms.get(leaf, [])
        return summed[0][1] if len(summed) == 1 and constant(summed[0][0]) == 1.0 else None

    while True:
        kept = set()
        for name in {leaf[0] for leaf in invariant}:
            sources = {key: passed((name, *key)) for key in traced[name].inputs}
            constants = {key: fixed[s] for key, s in sources.items() if s in invariant and s in fixed}
            copies = _copies(traced[name], constants)
            kept |= {
                leaf for leaf in invariant if leaf[0] == name and sources.get(copies.get(leaf[1:])) == leaf
            }
        if kept == invariant:
            return frozenset(invariant)
        invariant = kept


def _copies(traced: Traced, constants: Mapping[Key, float]) -> dict[Key, Key]:
    """The outputs that are copies of an input, given that some inputs are constant (times 1 is a copy too)."""
    same: dict[core.Var, Key] = dict(zip(traced.jaxpr.invars, traced.inputs, strict=True))
    value = {var: constants[key] for var, key in same.items() if key in constants}
    for eqn in traced.jaxpr.eqns:
        name = eqn.primitive.name
        if name == "mul":
            factors = [atom.val if isinstance(atom, core.Literal) else value.get(atom) for atom in eqn.invars]
            others = [eqn.invars[1 - i] for i, factor in enumerate(factors) if factor == 1.0]
        else:
            others = [eqn.invars[0]] if name in ("convert_element_type", "copy") else []
        if others and isinstance(others[0], core.Var) and others[0] in same:
            same[eqn.outvars[0]] = same[others[0]]
    outputs = zip(traced.outputs, traced.jaxpr.outvars, strict=True)
    return {key: same[var] for key, var in outputs if isinstance(var, core.Var) and var in same}


def _value(machine: Machine, path: Path) -> float:
    node: Any = machine.values
    for key in path:
        node = node[key]
    return float(node)


def _known(machine: Machine, layout: Layout, paths: Iterable[Path]) -> frozenset[str]:
    soft_start = {path[1] for path in paths if path[0] == "outputs" and path not in machine.hard}
    prefix: Path = ("matrix",) if machine.matrix_from is None else ("outputs", *machine.matrix_from)
    known = set(machine.neurons) - soft_start - {machine.output}
    while True:
        reached = {
            to[0]
            for (to, source), path in [*layout.links.items(), *layout.deep.items()]
            if source[0] not in known or (*prefix, *path) not in machine.hard
        }
        if known.isdisjoint(reached):
            return frozenset(known)
        known -= reached
