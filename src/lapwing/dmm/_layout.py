"""Which keys can occur in each field of a machine: found without running it, by following keys instead of numbers.

Every output field starts with the keys of its initial value. In each round every input field gets the keys of all
fields that are linked to it, and every neuron's function is traced on trees with all these keys; the keys of its result
are added to its output fields. When a round adds nothing, no run can: a missing key is a zero, so tracing with the key
covers the case without it.

In a self-modifying machine the links that can occur are themselves keys: those of the field that holds the matrix.

A number that meets a tree counts as `{":number": n}` (see `trees.add`). Here that is decided once for the whole run:
where both a leaf and a branch can occur, the leaf is at ":number" of the branch.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lapwing import trees
from lapwing.trees import NUMBER, Path

from ._activation import MachineError
from ._keys import normalised
from ._machine import Machine
from ._neuron import FUNCTION, Neuron
from ._trace import output_shapes

Field = tuple[str, str]  # a neuron and one of its input or output fields
Leaf = tuple[str, str, Path]  # a field and a key path in it

ROUNDS_PER_NEURON = 10
# Values have no end that grow deeper for more rounds than these (or twice the number of neurons), or that still grow
# deeper with more leaves than these (or ten times those of the machine).
DEEPER = 100
MOST_LEAVES = 10_000


@dataclass(frozen=True)
class Layout:
    """The keys of every field that can hold something, and the links that can carry something."""

    inputs: dict[Field, tuple[Path, ...]]
    outputs: dict[Field, tuple[Path, ...]]
    links: dict[tuple[Field, Field], Path]  # (to, from) -> the key path of its weight in the matrix
    deep: dict[
        tuple[Field, Path], Path
    ]  # the same for links of a part: (to, (neuron, field, *keys)) -> its weight


def lay_out(machine: Machine) -> Layout:
    """Follows the keys of a machine until no field gets a new one."""
    initial = {
        (name, field): normalised(trees.paths(trees.as_tree(value)))
        for name, fields in machine.outputs.items()
        for field, value in fields.items()
    }
    outputs = dict(initial)
    known: dict[Any, dict[str, tuple[Path, ...]]] = {}
    latest: list[Field] = []
    growth = _Growth(machine)
    for _ in range(ROUNDS_PER_NEURON * (len(machine.neurons) + 10)):
        links, deep = _links(machine, outputs)
        inputs = _inputs(links, deep, outputs)
        grown = dict(initial)
        for name, neuron in machine.neurons.items():
            read = tuple((field, inputs.get((name, field), ())) for field in neuron.inputs)
            signature = (kind_of(neuron), read)
            if signature not in known:
                known[signature] = _written(neuron, read)
            for field, keys in known[signature].items():
                grown[name, field] = normalised([*grown.get((name, field), ()), *keys])
        grown = {field: keys for field, keys in grown.items() if keys}
        if grown == outputs:
            _check_numbers(deep, [*inputs.values(), *outputs.values()])
            return Layout(inputs, outputs, links, deep)
        growth.check(outputs, grown)
        latest = [field for field, keys in grown.items() if keys != outputs.get(field)]
        outputs = grown
    raise MachineError(_endless(latest[0], "there are new ones in every cycle"))


def unfold(machine: Machine) -> Machine:
    """The machine with a neuron (`machine.newborn` itself) for every name that can come to be."""
    if machine.newborn is None or machine.matrix_from is None:
        return machine
    grown = machine.with_neurons({})
    while True:
        matrix = lay_out(grown).outputs.get(machine.matrix_from, ())
        names = {path[0] for path in matrix if path[1] == FUNCTION} - grown.neurons.keys()
        if not names:
            return grown
        grown = grown.with_neurons(dict.fromkeys(sorted(names), machine.newborn))


def kind_of(neuron: Neuron) -> tuple[Any, ...]:
    """A key that is equal for neurons that compute the same."""
    functions = tuple((f.name, f.function, repr(sorted(f.options.items()))) for f in neuron.functions)
    return neuron.fluid, functions


def empty_tree(read: Iterable[tuple[str, tuple[Path, ...]]]) -> trees.Tree:
    """The inputs of a neuron with a scalar shape at every leaf, to trace it."""
    scalar = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return {field: trees.from_paths(dict.fromkeys(keys, scalar)) if keys else {} for field, keys in read}


def _written(neuron: Neuron, read: tuple[tuple[str, tuple[Path, ...]], ...]) -> dict[str, tuple[Path, ...]]:
    outputs = output_shapes(neuron, empty_tree(read))
    found = {field: trees.paths(value) for field, value in outputs.items()}
    for field, leaves in found.items():
        for path, leaf in leaves.items():
            if leaf.shape:
                names = " and ".join(repr(f.name) for f in neuron.functions)
                raise MachineError(
                    f"the leaves of a V-value are numbers, but the activation {names} put an array of shape "
                    f"{leaf.shape} at {field!r}, {'/'.join(path)!r}; give each of its numbers a key of its own"
                )
    return {field: tuple(leaves) for field, leaves in found.items()}


def parts_of(source: Path, outputs: Mapping[Field, tuple[Path, ...]]) -> list[tuple[Path, Path]]:
    """The keys of an output field that a link of a part carries, and what they are at its end."""
    name, field, *key = source
    depth = len(key)
    found = [path for path in outputs.get((name, field), ()) if path[:depth] == tuple(key)]
    return [(path, path[depth:] or (NUMBER,)) for path in found]


def _links(
    machine: Machine, outputs: dict[Field, tuple[Path, ...]]
) -> tuple[dict[tuple[Field, Field], Path], dict[tuple[Field, Path], Path]]:
    held_in = machine.matrix_from
    matrix = trees.paths(machine.matrix) if held_in is None else outputs.get(held_in, ())
    found, deep = {}, {}
    for path in matrix:
        if len(path) < 4:
            raise MachineError(
                "a network matrix has its weights at [to][to_field][from][from_field] or deeper, but in this machine "
                f"one can get to {'/'.join(map(repr, path))}; "
                + (
                    f"change what is linked to {'.'.join(held_in)}"
                    if held_in
                    else "only interpret can run it"
                )
            )
        to, source = (path[0], path[1]), (path[2], path[3])
        read = path[0] in machine.neurons and path[1] in machine.neurons[path[0]].inputs
        if read and len(path) == 4 and source in outputs:
            found[to, source] = path
        if read and len(path) > 4 and parts_of(path[2:], outputs):
            deep[to, path[2:]] = path
    return found, deep


def _inputs(
    links: Iterable[tuple[Field, Field]],
    deep: Iterable[tuple[Field, Path]],
    outputs: dict[Field, tuple[Path, ...]],
) -> dict[Field, tuple[Path, ...]]:
    found: dict[Field, list[Path]] = defaultdict(list)
    for to, source in links:
        found[to] += outputs[source]
    for to, source in deep:
        found[to] += [rest for _, rest in parts_of(source, outputs)]
    return {field: normalised(keys) for field, keys in found.items()}


class _Growth:
    """Notices values without an end: they grow deeper in round after round, or by now fill memory."""

    def __init__(self, machine: Machine):
        self.deeper = 0
        self.most_rounds = max(DEEPER, 2 * len(machine.neurons))
        self.most_leaves = max(MOST_LEAVES, 10 * len(trees.paths(machine.values)))

    def check(self, before: dict[Field, tuple[Path, ...]], now: dict[Field, tuple[Path, ...]]) -> None:
        deepest, field, path = max(_depths(now), default=(0, ("", ""), ()))
        is_deeper = deepest > max(_depths(before), default=(0,))[0]
        self.deeper = self.deeper + 1 if is_deeper else 0
        is_large = is_deeper and sum(map(len, now.values())) > self.most_leaves
        if self.deeper > self.most_rounds or is_large:
            raise MachineError(_endless(field, f"they grow deeper in every cycle ({'/'.join(path[:3])}/…)"))


def _depths(outputs: dict[Field, tuple[Path, ...]]) -> Iterator[tuple[int, Field, Path]]:
    return ((len(path), field, path) for field, keys in outputs.items() for path in keys)


def _check_numbers(deep: Iterable[tuple[Field, Path]], fields: Iterable[tuple[Path, ...]]) -> None:
    """A link that reads below a number carries nothing, one that reads its ":number" where it has met a tree carries
    it. Which of the two it is may change during a run, and then the keys are not enough to tell."""
    numbered = [source for _, source in deep if source[-1] == NUMBER]
    everything = {path for paths in fields for path in paths}
    if numbered and set(normalised(everything)) != everything:
        raise MachineError(
            f"the link of {'/'.join(numbered[0])} reads the ':number' of a tree, and in this machine the same key can "
            "be a number in one field and a tree in another; give the two different keys, or run it with interpret"
        )


def _endless(field: Field, how: str) -> str:
    name = field[0]
    return (
        f"the keys of {'.'.join(field)} cannot be inferred: {how}; break the loop of links through {name!r}, "
        "or change its activation, which makes new keys from those that it reads"
    )
