"""A machine as data: neurons by name, the weights of its links, its initial outputs, and which of them are trained.

All numbers of a machine are in one tree, `machine.values`:

    {"matrix": {to: {to_field: {from: {from_field: weight}}}}, "outputs": {neuron: {field: V-value}}}

A self-modifying machine (`Machine(matrix_from="self.result")`) has no "matrix": its links are the initial value of
that output, and every cycle reads them from there. A leaf is *soft* (trained) or *hard* (fixed); by default links are
soft and initial outputs hard.

A link reads a whole output field, or what is in it under a key (`m.link(..., key="a")`): then its weight is deeper, at
`matrix[to][to_field][from][from_field]["a"]`.

A link is *dead* if its source never writes the field or its target never reads it. `link` refuses a dead link.
Published machines have many, which carry nothing but count in a regularization: `Machine.from_matrix(matrix,
dead_links="keep")` keeps them.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from lapwing import trees
from lapwing.core import UnreadableError, closest, read_regular, suggestion
from lapwing.trees import Path, Tree

from . import _graph, _serialization
from ._activation import REGISTRY, Activation, MachineError
from ._checks import check_activation, check_field, check_weight, split_address
from ._neuron import FUNCTION, Neuron
from ._serialization import DeadLinks

_MOST_BYTES = 1 << 26


class Link(NamedTuple):
    """One weight of the network matrix.

    >>> from lapwing import dmm
    >>> strongest = max(dmm.readable_detector().links(), key=lambda link: abs(link.weight))
    >>> f"{strongest.to}.{strongest.to_field} ← {strongest.origin}"
    'dot-2-2.dict-2 ← eos.char'
    """

    to: str
    to_field: str
    source: str
    source_field: str
    weight: Any
    hard: bool
    dead: bool
    key: Path = ()

    @property
    def passes_mix(self) -> bool:
        """Whether it only passes a fluid neuron's mix to the next cycle."""
        return self.to_field == FUNCTION and self.to == self.source and not self.key

    @property
    def origin(self) -> str:
        """What it reads, as text: `accum.dict`, or with a key `accum.dict/a`."""
        return "/".join([f"{self.source}.{self.source_field}", *self.key])


class Machine:
    """A dataflow matrix machine.

    >>> from lapwing import dmm
    >>> m = dmm.Machine()
    >>> m.neuron("timer", dmm.timer)
    >>> m.neuron("output", dmm.output)
    >>> m.link("timer.timer", "timer.timer", 1.0, hard=True)
    >>> m.link("output.dict-1", "timer.timer", 0.5)
    >>> dmm.interpret(m, cycles=4).answers["dict-1"]
    [0.0, 0.5, 1.0, 1.5]
    """

    def __init__(self, *, matrix_from: str | None = None, output: str = "output"):
        self.neurons: dict[str, Neuron] = {}
        self.output = output
        self.matrix_from = split_address(matrix_from) if matrix_from else None
        self.newborn: Neuron | None = (
            None  # what a neuron that comes to be during a run is, and how many there can be
        )
        self.capacity = 0
        self.hard: set[Path] = set()
        self.values: Tree = {"outputs": {}} if self.matrix_from else {"matrix": {}, "outputs": {}}

    # Build it.

    def neuron(self, name: str, activation: Activation, **options: Any) -> None:
        """Adds a neuron; options of its activation can be set for this neuron alone."""
        self._add(name, Neuron((check_activation(activation).with_options(**options),)))

    def fluid(
        self, name: str, functions: Iterable[Activation], mix: Mapping[str, Any], *, hard: bool = False
    ) -> None:
        """Adds a superfluid neuron with the initial weight of each function. A hard link of weight 1 from its
        `:function` to itself passes the mix from cycle to cycle.
        """
        functions = tuple(map(check_activation, functions))
        names = [function.name for function in functions]
        for key in mix:
            if key not in names:
                raise MachineError(
                    f"the neuron {name!r} does not mix a function {key!r}; {suggestion(key, names)}"
                )
        self._add(name, Neuron(functions, fluid=True))
        self.initial(f"{name}.{FUNCTION}", dict(mix), hard=hard)
        self.link(f"{name}.{FUNCTION}", f"{name}.{FUNCTION}", 1.0, hard=True)

    def grow(self, functions: Iterable[Activation], *, capacity: int) -> None:
        """Lets neurons come to be during a run: every name in the matrix that is none of the machine's neurons is a
        fluid one, as long as its row `:function` carries a mix of these functions that is not zero.

        **Arguments**: `functions` that such a neuron can mix; `capacity`, the most of them that can be there in one
        cycle. In a cycle that has more, `interpret` fails and a compiled program answers NaN.

        >>> from lapwing import dmm
        >>> m = dmm.growing_machine(capacity=4)
        >>> [len(names) for names in dmm.interpret(m, cycles=12).born]
        [0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
        """
        if self.matrix_from is None:
            raise MachineError(
                "expected a machine that holds its matrix in a neuron, since only such a matrix can name new neurons, "
                "but this one has a fixed matrix; write Machine(matrix_from='self.result')"
            )
        if not isinstance(capacity, int) or capacity < 1:
            raise MachineError(f"a capacity is a whole number of neurons, 1 or more, but got {capacity!r}")
        self.newborn, self.capacity = Neuron(tuple(map(check_activation, functions)), fluid=True), capacity

    def link(
        self,
        to: str,
        source: str,
        weight: Any,
        *,
        key: str | Path = (),
        hard: bool = False,
        dead: bool = False,
    ) -> None:
        """Links an output field (`source="accum.dict"`) to an input field (`to="norm.dict"`) with a weight.

        **Arguments**: `key`, of all that the source holds only what is under this key, or under this path of keys;
        `dead=True` accepts a link that carries nothing.

        >>> from lapwing import dmm
        >>> m = dmm.duplicate_detector()
        >>> m.link("output.dict-2", "accum.dict", 10.0, key="b")
        >>> dmm.interpret(m, cycles=15, text="bb").answers["dict-2"][-1]
        20.0
        """
        (to_name, to_field), (source_name, source_field) = split_address(to), split_address(source)
        target, origin = self._find(to_name, "link to"), self._find(source_name, "link from")
        if not dead:
            check_field(to_name, to_field, "reads", target.inputs)
            check_field(source_name, source_field, "writes", origin.outputs)
        keys = (key,) if isinstance(key, str) else tuple(key)
        path = (*self.matrix_path, to_name, to_field, source_name, source_field, *keys)
        self._set(path, weight, hard, f"the link {to} ← {'/'.join([source, *keys])}")

    def initial(self, address: str, value: Any, *, hard: bool = True) -> None:
        """Sets the initial V-value of an output field; by default it is empty."""
        name, field = split_address(address)
        check_field(name, field, "writes", self._find(name, "start").outputs)
        if (name, field) == self.matrix_from:
            raise MachineError(f"{address} holds the links of this machine; add each with m.link(...)")
        for keys, leaf in trees.paths(trees.as_tree(value)).items():
            self._set(
                ("outputs", name, field, *keys), leaf, hard, f"the initial value {address} {'/'.join(keys)}"
            )

    def _add(self, name: str, neuron: Neuron) -> None:
        if "." in name or not name:
            raise MachineError(
                f"a neuron's name is not empty and has no dot, but got {name!r}; for example 'norm-1'"
            )
        if name in self.neurons:
            raise MachineError(f"there is already a neuron {name!r}; give this one another name")
        self.neurons[name] = neuron

    def _find(self, name: str, purpose: str) -> Neuron:
        if name not in self.neurons:
            raise MachineError(f"there is no neuron {name!r} to {purpose}; {suggestion(name, self.neurons)}")
        return self.neurons[name]

    def _set(self, path: Path, value: Any, hard: bool, what: str) -> None:
        check_weight(value, what)
        branch = self.values
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                raise MachineError(
                    f"{what} reads a part of what another link reads; take a neuron in between for one of the two"
                )
        if isinstance(branch.get(path[-1]), dict):
            raise MachineError(
                f"{what} reads all of what another link reads a part of; take a neuron in between for one of the two"
            )
        if path[-1] in branch:
            raise MachineError(f"{what} exists already; change values with `with_values`")
        branch[path[-1]] = value
        if hard:
            self.hard.add(path)

    # Read it.

    @property
    def matrix_path(self) -> Path:
        """The path of the network matrix in `values`."""
        return ("outputs", *self.matrix_from) if self.matrix_from else ("matrix",)

    @property
    def matrix(self) -> Tree:
        """The network matrix: `matrix[to][to_field][from][from_field] = weight`, deeper for a link with a key."""
        branch = self.values
        for key in self.matrix_path:
            branch = branch.get(key, {})
        return branch

    @property
    def outputs(self) -> Tree:
        """The initial outputs (of a self-modifying machine the matrix too)."""
        return self.values["outputs"]

    def links(self) -> list[Link]:
        """Returns every link, sorted by target and then by source."""
        found = []
        leaves = trees.paths(self.matrix)
        _serialization.check_depths(leaves)
        for path, weight in leaves.items():
            to, to_field, source, source_field, *key = path
            read = to in self.neurons and to_field in self.neurons[to].inputs
            written = source in self.neurons and source_field in self.neurons[source].outputs
            hard = (*self.matrix_path, *path) in self.hard
            dead = not (read and written)
            found.append(Link(to, to_field, source, source_field, weight, hard, dead, tuple(key)))
        return found

    def soft(self) -> list[Path]:
        """Returns the paths in `values` of the leaves that are trained, in sorted-key order."""
        return [path for path in trees.paths(self.values) if path not in self.hard]

    def columns(self) -> dict[str, int]:
        """Returns the column of each neuron in a drawing, from the left: a neuron is to the right of what it reads,
        except in loops. The output neuron is alone in the last column.
        """
        return _graph.columns(self)

    def idle(self) -> list[str]:
        """Returns the neurons without links."""
        return _graph.idle(self)

    def used(self) -> set[str]:
        """Returns the neurons that an answer can depend on."""
        return set(self.neurons) - _graph.cannot_reach_output(self)

    # Change it: each returns a new machine.

    def with_values(self, values: Tree) -> "Machine":
        """Returns the machine with other numbers (jax tracers too, to differentiate it). The tree has the leaves
        of `values` or some of them: a leaf that is missing removes its link.

        >>> from lapwing import dmm, trees
        >>> m = dmm.readable_detector()
        >>> len(m.with_values(trees.prune(m.values, 0.5)).links())
        16
        """
        known = trees.paths(self.values)
        given = trees.paths(values)
        for path in given:
            if path not in known:
                raise MachineError(
                    f"the values have a leaf at {trees.show_path(path)} that this machine does not have; "
                    "add links with m.link, and give with_values only leaves of machine.values"
                )
        changed = self._copy()
        changed.values = {**{key: {} for key in self.values}, **trees.from_paths(given)}
        changed.hard = self.hard & given.keys()
        return changed

    def with_options(self, **options: Any) -> "Machine":
        """Returns the machine with these options set for every activation that has them.

        >>> from lapwing import dmm
        >>> dmm.duplicate_detector().with_options(governor=4.0).neurons["dot"].functions[0].options
        {'governor': 4.0}
        """
        known = {option for function in self._all_functions() for option in function.options}
        for name in options:
            if name not in known:
                raise MachineError(f"no activation has an option {name!r}; {suggestion(name, sorted(known))}")
        changed = self._copy()
        changed.neurons = {name: neuron.with_options(options) for name, neuron in self.neurons.items()}
        changed.newborn = self.newborn and self.newborn.with_options(options)
        return changed

    def with_neurons(self, neurons: Mapping[str, Neuron]) -> "Machine":
        """Returns the machine with these neurons too."""
        changed = self._copy()
        changed.neurons |= neurons
        return changed

    def _all_functions(self) -> list[Activation]:
        neurons = [*self.neurons.values(), *([self.newborn] if self.newborn else [])]
        own = [function for neuron in neurons for function in neuron.functions]
        return [*REGISTRY.values(), *own]

    def _copy(self) -> "Machine":
        twin = Machine(output=self.output)
        twin.matrix_from = self.matrix_from
        twin.newborn, twin.capacity = self.newborn, self.capacity
        twin.neurons, twin.hard, twin.values = dict(self.neurons), set(self.hard), self.values
        return twin

    # Files.

    def to_json(self) -> str:
        """Returns the machine as JSON text, without loss.

        >>> from lapwing import dmm
        >>> text = dmm.readable_detector().to_json()
        >>> dmm.Machine.from_json(text).values == dmm.readable_detector().values
        True
        """
        return _serialization.to_json(self)

    def save(self, file: str | os.PathLike) -> None:
        """Writes the machine to a file."""
        try:
            FilePath(file).write_text(self.to_json(), encoding="utf-8")
        except OSError as error:
            reason = f"{error.strerror}; name another file"
            raise MachineError(f"cannot write the machine to {str(file)!r}: {reason}") from None

    @classmethod
    def load(cls, file: str | os.PathLike) -> "Machine":
        """Reads the machine in a file: one that `save` wrote, or a published matrix. The name of a machine of the
        library (`dmm.library()`) works too, where there is no such file.

        >>> from lapwing import dmm
        >>> len(dmm.Machine.load("parity").links())
        7
        """
        from ._library import library  # It imports this module.

        path = FilePath(file)
        try:
            text = read_regular(path, _MOST_BYTES).decode()
        except FileNotFoundError:
            if str(file) in library():
                return library()[str(file)].build()
            guess = closest(str(file), library())
            raise MachineError(
                f"expected a machine in the file {str(path)!r}, but there is no such file"
                + (
                    f"; did you mean {guess} of the library?"
                    if guess
                    else "; `lapwing dmm list` shows the library"
                )
            ) from None
        except UnicodeDecodeError:
            raise MachineError(
                f"expected a machine in the file {str(path)!r}, but it is not text; name a .json file"
            ) from None
        except (OSError, UnreadableError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise MachineError(f"cannot read the machine in the file {str(path)!r}: {why}") from None
        try:
            return cls.from_json(text)
        except (MachineError, trees.TreeError) as error:
            raise MachineError(f"cannot read the machine in the file {str(path)!r}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> "Machine":
        """Reads what `to_json` wrote, or a published file, which has only the matrix: then the rows of `timer` and
        `input` are hard, dead links are kept, and fixed links that it leaves out are added (see `from_matrix`).
        """
        return _serialization.from_json(cls, text)

    @classmethod
    def from_matrix(
        cls,
        matrix: Tree,
        activations: Mapping[str, Activation] | None = None,
        *,
        hard_rows: Iterable[str] = (),
        dead_links: DeadLinks = "error",
    ) -> "Machine":
        """Builds a machine from a network matrix, the published format.

        A matrix that reads the input, but has no links of the clock, has only the trained links of its machine, as
        the published feed-forward runs have. The fixed ones are added: the clock drives the input, and an accumulator
        without links to its memory keeps itself, all with hard links of weight 1.

        **Arguments**

        - `activations`: the activation of each neuron; by default that of the first part of its name (`"dot-2"` is a
          `dot`).
        - `hard_rows`: the neurons whose incoming links are fixed.
        - `dead_links`: whether links that carry nothing are an error, kept or dropped.

        >>> from lapwing import dmm
        >>> m = dmm.Machine.from_matrix({"norm-1": {"dict": {"eos": {"char": 0.5}}}})
        >>> list(m.neurons), m.links()[0].weight
        (['eos', 'norm-1'], 0.5)
        >>> m = dmm.Machine.from_matrix({"accum-1": {"dict-2": {"input": {"char": 0.5}}}})
        >>> [f"{link.to}.{link.to_field} ← {link.source}.{link.source_field}" for link in m.links() if link.hard]
        ['accum-1.dict-1 ← accum-1.dict', 'input.timer ← timer.timer', 'timer.timer ← timer.timer']
        """
        return _serialization.from_matrix(cls, matrix, activations, hard_rows, dead_links)

    @classmethod
    def from_superfluid(
        cls, outputs: Tree, *, soft: Iterable[Path] | None = None, matrix_from: str = "self.result"
    ) -> "Machine":
        """Builds a superfluid machine from the tree of its initial outputs, with the matrix at `matrix_from` and the
        mix of each neuron in its `:function`. `soft` lists the paths of the leaves that are trained, by default all.
        """
        return _serialization.from_superfluid(cls, outputs, soft, matrix_from)


def check_machine(given: Any) -> Machine:
    """Returns what is a machine; the name of one in the library is not."""
    if not isinstance(given, Machine):
        name = given if isinstance(given, str) else "FILE"
        raise MachineError(
            f"expected a machine, but got {given!r:.80}; load one from a file or from the library with "
            f"dmm.Machine.load({name!r:.80})"
        )
    return given
