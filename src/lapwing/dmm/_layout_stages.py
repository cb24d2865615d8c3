"""The order in which a machine with a constant matrix is computed: stage by stage instead of cycle by cycle.

Neurons outside of a loop of links need not wait for the loop: all their cycles can be computed together, as arrays over
time, once what they read is there. So the leaves are sorted by their dependencies. Leaves that depend on each other in
a loop form a recurrent component and are stepped through in time; all others are computed for all cycles at once. A
stage holds what can be computed after the stages before it. Sorting leaves instead of neurons keeps the components
small: the characters in an accumulator never read a number, so they come before the numbers, which read them.

Within a stage, neurons that compute the same with the same fields form a group, and keys that occur in the same fields
form a class, so that a group's field is one array [keys of the class, neurons].
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lapwing.trees import NUMBER, Path

from ._compile_arrays import Slot
from ._components import depths
from ._keys import place
from ._layout import Field, Leaf, kind_of
from ._layout_flow import Flow, live_leaves
from ._neuron import FUNCTION, Neuron


@dataclass(frozen=True)
class Group:
    """Neurons that are computed together, what they read, and which of their outputs belong to this stage."""

    names: tuple[str, ...]
    neuron: Neuron
    mixed: frozenset[str]  # the functions in the mixes of fluid neurons
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]


@dataclass(frozen=True)
class Stage:
    """`direct` groups are computed for all cycles at once; the `recurrent` ones in one loop over the cycles."""

    direct: tuple[Group, ...]
    recurrent: tuple[Group, ...]


@dataclass(frozen=True)
class Plan:
    classes: tuple[tuple[Path, ...], ...]
    stages: tuple[Stage, ...]
    streams: Mapping[int, tuple[Field, ...]]  # class -> known output fields that carry one of its keys
    answers: Mapping[int, tuple[Field, int]]  # position of the answer -> input field and class
    weights: Mapping[tuple[Field, Field], int]  # (to, from) -> index among the values


def plan_stages(flow: Flow) -> Plan | None:
    """The plan, or None for a machine that rewrites itself, in which a number is not always at the same key, or with
    links that read a part of a field."""
    inputs, outputs = live_leaves(flow)
    whole = flow.is_static and not flow.layout.deep and _keys_stay(flow, inputs)
    if not whole or flow.watched or _has_numbers_in_branches(flow):
        return None
    nodes = {leaf for leaf in outputs if leaf[0] not in flow.known and leaf not in flow.invariant}
    reads = {leaf: _input_leaves(flow, leaf) for leaf in nodes}
    edges = {
        leaf: {source for read in reads[leaf] for _, source in flow.terms[read] if source in nodes}
        for leaf in nodes
    }
    found = depths(edges)
    classes, class_of = _classes(
        found, {read for some in reads.values() for read in some} | set(flow.answers.values())
    )
    slots: dict[tuple[int, bool, str], set[Slot]] = defaultdict(set)
    needs: dict[tuple[int, bool, str], set[Slot]] = defaultdict(set)
    for leaf, (depth, recurrent) in found.items():
        name, field, path = leaf
        slots[depth, recurrent, name].add((field, class_of[path]))
        needs[depth, recurrent, name] |= {(read[1], class_of[read[2]]) for read in reads[leaf]}
    stages = tuple(
        Stage(_groups(flow, slots, needs, depth, False), _groups(flow, slots, needs, depth, True))
        for depth in sorted({depth for depth, _ in found.values()})
    )
    answers = {i: (leaf[:2], class_of[leaf[2]]) for i, leaf in flow.answers.items()}
    return Plan(classes, stages, _streams(flow, classes), answers, _link_indices(flow))


def _keys_stay(flow: Flow, inputs: Iterable[Leaf]) -> bool:
    moved = any(traced.nests_numbers for traced in flow.traced.values())
    moved |= any(leaf[1] == FUNCTION and len(leaf[2]) > 1 for leaf in inputs)
    return not moved and all(source[2] == leaf[2] for leaf in inputs for _, source in flow.terms[leaf])


def _has_numbers_in_branches(flow: Flow) -> bool:
    """Whether a number and the same number in a branch occur: classes of keys know paths, not places."""
    fields = (*flow.layout.inputs.values(), *flow.layout.outputs.values())
    paths = {path for keys in fields for path in keys}
    return len({place(path) for path in paths}) < len(paths) or any(
        not place(path) and path != (NUMBER,) for path in paths
    )


def _input_leaves(flow: Flow, leaf: Leaf) -> list[Leaf]:
    """The input leaves that an output leaf depends on, without the invariant ones: those are parameters."""
    name, field, path = leaf
    keys = flow.traced[name].depends.get((field, path), ())
    found = [(name, *key) for key in keys]
    return [read for read in found if not all(source in flow.invariant for _, source in flow.terms[read])]


def _classes(
    found: Mapping[Leaf, tuple[int, bool]], inputs: Iterable[Leaf]
) -> tuple[tuple[tuple[Path, ...], ...], dict[Path, int]]:
    occurs: dict[Path, set] = defaultdict(set)
    for (name, field, path), where in found.items():
        occurs[path].add((name, field, "output", *where))
    for name, field, path in inputs:
        occurs[path].add((name, field, "input"))
    classes: dict[frozenset, list[Path]] = defaultdict(list)
    for path in sorted(occurs):
        classes[frozenset(occurs[path])].append(path)
    listed = tuple(map(tuple, classes.values()))
    return listed, {path: i for i, paths in enumerate(listed) for path in paths}


def _groups(flow: Flow, slots: Mapping, needs: Mapping, depth: int, recurrent: bool) -> tuple[Group, ...]:
    """Neurons of a kind with the same outputs here. An input that one of them does not read is zero."""
    found: dict[tuple, list[str]] = defaultdict(list)
    for *stage, name in sorted(slots):
        if stage == [depth, recurrent]:
            neuron = flow.machine.neurons[name]
            key = (kind_of(neuron), _mixed(flow, name), frozenset(slots[depth, recurrent, name]))
            found[key].append(name)
    return tuple(
        Group(
            tuple(names),
            flow.machine.neurons[names[0]],
            mixed,
            tuple(sorted(set().union(*(needs[depth, recurrent, name] for name in names)))),
            tuple(sorted(outputs)),
        )
        for (_, mixed, outputs), names in found.items()
    )


def _mixed(flow: Flow, name: str) -> frozenset[str]:
    return frozenset(path[0] for field, path in flow.traced[name].inputs if field == FUNCTION)


def _streams(flow: Flow, classes: tuple[tuple[Path, ...], ...]) -> dict[int, tuple[Field, ...]]:
    linked = sorted(
        {source for to, source in flow.layout.links if source[0] in flow.known and to[0] not in flow.known}
    )
    return {
        i: tuple(field for field in linked if not set(paths).isdisjoint(flow.layout.outputs[field]))
        for i, paths in enumerate(classes)
    }


def _link_indices(flow: Flow) -> dict[tuple[Field, Field], int]:
    """The index of each link's weight among the values; an invariant link has that of its initial leaf."""
    if flow.machine.matrix_from is None:
        indices = {path[1:]: i for i, path in enumerate(flow.paths) if path[0] == "matrix"}
        return {link: indices[path] for link, path in flow.layout.links.items()}
    return {link: flow.initial[(*flow.machine.matrix_from, path)] for link, path in flow.layout.links.items()}
