"""File formats of machines: Lapwing's JSON, the published matrix, the superfluid tree.

The published formats have weights only; the activations follow from the names of the neurons, or from their mixes. A
published matrix has all links of its machine, or those that were trained: then the fixed ones are added.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from lapwing import trees
from lapwing.core import UnreadableError, parse_json, suggestion
from lapwing.trees import Path, Tree

from ._activation import REGISTRY, Activation, MachineError, find_activation
from ._neuron import FUNCTION, Neuron

if TYPE_CHECKING:
    from ._machine import Machine

DeadLinks = Literal["error", "keep", "drop"]
FORM = "lapwing machine 1"
CLOCK = "timer"  # the neuron, and its field
FIXED_ROWS = (CLOCK, "input")  # which no published run trained


def from_matrix(
    cls: type["Machine"],
    matrix: Tree,
    activations: Mapping[str, Activation] | None,
    hard_rows: Iterable[str],
    dead_links: DeadLinks,
) -> "Machine":
    leaves = trees.paths(matrix)
    check_depths(leaves)
    hard_rows = set(hard_rows)
    if activations is None:
        names = sorted({path[0] for path in leaves} | {path[2] for path in leaves})
        activations = {name: _by_name(name) for name in names}
    fixed = _fixed_links(leaves, activations)
    if fixed:
        activations = {**activations, CLOCK: activations.get(CLOCK) or _by_name(CLOCK)}
    machine = cls()
    for name, activation in activations.items():
        machine.neuron(name, activation)
    for (to, to_field, source, source_field, *key), weight in leaves.items():
        _check_row(to, to_field, activations)
        known = source in activations
        live = known and source_field in activations[source].outputs and to_field in activations[to].inputs
        if live or dead_links != "drop":
            machine.link(
                f"{to}.{to_field}",
                f"{source}.{source_field}",
                weight,
                key=tuple(key),
                hard=to in hard_rows,
                dead=dead_links == "keep",
            )
    for to, source in fixed:
        machine.link(to, source, 1.0, hard=True)
    return machine


def _fixed_links(leaves: Iterable[Path], activations: Mapping[str, Activation]) -> list[tuple[str, str]]:
    """The links that a file of trained links alone leaves out: those of the clock, and of each accumulator to itself.
    It is such a file if the text is read, but nothing says when.
    """
    rows = {path[0] for path in leaves}
    readers = sorted(
        {path[2] for path in leaves if path[2] in activations and "text" in activations[path[2]].options}
    )
    if not readers or rows & {CLOCK, *readers}:
        return []
    clock = f"{CLOCK}.{CLOCK}"
    links = [(clock, clock), *((f"{name}.{activations[name].inputs[0]}", clock) for name in readers)]
    memories = {(path[0], path[1]) for path in leaves}
    for name, activation in activations.items():
        if activation.accumulator and (name, activation.inputs[0]) not in memories:
            links.append((f"{name}.{activation.inputs[0]}", f"{name}.{activation.outputs[0]}"))
    return links


def check_depths(leaves: Iterable[Path]) -> None:
    for path in leaves:
        if len(path) < 4:
            raise MachineError(
                "a network matrix has its weights at [to][to_field][from][from_field] or deeper, but one is at "
                f"{trees.show_path(path)}; read a tree of initial outputs with Machine.from_superfluid"
            )


def _check_row(to: str, to_field: str, neurons: Iterable[str]) -> None:
    if to not in neurons:
        raise MachineError(
            f"the matrix has a row {to}.{to_field}, but there is no neuron {to!r}; {suggestion(to, neurons)}"
        )


def _by_name(name: str) -> Activation:
    stem = name.split("-")[0]
    if stem not in REGISTRY:
        raise MachineError(
            f"the name of the neuron {name!r} does not begin with that of an activation; "
            f"{suggestion(stem, REGISTRY)}; pass activations={{{name!r}: ...}}"
        )
    return REGISTRY[stem]


def from_superfluid(
    cls: type["Machine"], outputs: Tree, soft: Iterable[Path] | None, matrix_from: str
) -> "Machine":
    machine = cls(matrix_from=matrix_from)
    for name, fields in outputs.items():
        if FUNCTION not in fields:
            raise MachineError(
                f"the neuron {name!r} of the superfluid tree has no {FUNCTION!r}; "
                f"give it its mix, like {{{FUNCTION!r}: {{'accum_add_args': 1.0}}}}"
            )
        functions = tuple(find_activation(key) for key in fields[FUNCTION])
        machine.neurons[name] = Neuron(functions, fluid=True)
    machine.values = trees.map_leaves(lambda leaf: leaf, {"outputs": outputs})
    _check_ends(machine)
    everything = set(trees.paths(machine.values))
    chosen = everything if soft is None else {("outputs", *path) for path in soft}
    machine.hard = everything - chosen
    return machine


def _check_ends(machine: "Machine") -> None:
    """Checks that both ends of every link are neurons of the machine; their fields may be dead."""
    links = trees.paths(machine.matrix)
    check_depths(links)
    for to, to_field, source, source_field, *_ in links:
        _check_row(to, to_field, machine.neurons)
        if source not in machine.neurons:
            raise MachineError(
                f"the matrix reads {source}.{source_field}, but there is no neuron {source!r}; "
                f"{suggestion(source, machine.neurons)}"
            )


def to_json(machine: "Machine") -> str:
    content = {
        "form": FORM,
        "output": machine.output,
        "matrix_from": ".".join(machine.matrix_from) if machine.matrix_from else None,
        "neurons": {name: _neuron_to_json(neuron) for name, neuron in machine.neurons.items()},
        "values": json.loads(trees.to_json(machine.values)),
        "hard": sorted(map(list, machine.hard)),
    }
    if machine.newborn is not None:
        content["newborn"] = {**_neuron_to_json(machine.newborn), "capacity": machine.capacity}
    return json.dumps(content, indent=1)


def _neuron_to_json(neuron: Neuron) -> dict[str, Any]:
    content: dict[str, Any] = {"functions": [function.name for function in neuron.functions]}
    if neuron.fluid:
        content["fluid"] = True
    options = {
        key: value
        for function in neuron.functions
        for key, value in function.options.items()
        if value != find_activation(function.name).options[key]
    }
    if options:
        content["options"] = options
    return content


def _read_object(text: str) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except UnreadableError as error:
        raise MachineError(f"expected the JSON text of a machine, but {error}") from None
    if not isinstance(content, dict):
        raise MachineError(f"expected the JSON object of a machine, but found a {type(content).__name__}")
    return content


def from_json(cls: type["Machine"], text: str) -> "Machine":
    content = _read_object(text)
    if "form" not in content:
        return from_matrix(cls, trees.from_json(text), None, FIXED_ROWS, "keep")
    if content["form"] != FORM:
        raise MachineError(f"expected a machine in the form {FORM!r}, but found {content['form']!r:.80}")
    for part, kind in _PARTS.items():
        if part not in content:
            raise MachineError(f"expected a machine in the form {FORM!r}, but its part {part!r} is missing")
        _check(isinstance(content[part], kind), part, content[part])
    machine = cls(matrix_from=content["matrix_from"], output=content["output"])
    for name, given in content["neurons"].items():
        machine._add(name, _neuron_from_json(name, given))
    if "newborn" in content:
        newborn = _neuron_from_json("newborn", content["newborn"])
        machine.grow(newborn.functions, capacity=content["newborn"].get("capacity"))
    machine.values = trees.from_json(json.dumps(content["values"]))
    _check_values(machine)
    for path in content["hard"]:
        _check(isinstance(path, list) and all(isinstance(key, str) for key in path), "hard", path)
        machine.hard.add(tuple(path))
    _check_ends(machine)
    return machine


_PARTS = {"matrix_from": str | None, "output": str, "neurons": dict, "values": dict, "hard": list}


def _neuron_from_json(name: str, given: Any) -> Neuron:
    where = f"neurons/{name}"
    _check(isinstance(given, dict), where, given)
    functions, fluid, options = given.get("functions"), given.get("fluid", False), given.get("options", {})
    _check(isinstance(functions, list) and functions, f"{where}/functions", functions)
    _check(all(isinstance(each, str) for each in functions), f"{where}/functions", functions)
    _check(isinstance(fluid, bool), f"{where}/fluid", fluid)
    _check(isinstance(options, dict), f"{where}/options", options)
    neuron = Neuron(tuple(map(find_activation, functions)), fluid)
    # JSON has no tuples.
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    for function in neuron.functions:
        for key, value in known.items():
            _check(function.allows(key, value), f"{where}/options/{key}", value)
    return neuron.with_options(known)


def _check_values(machine: "Machine") -> None:
    """Checks that every number is a link, or in an output of a neuron of the machine."""
    for part, branch in machine.values.items():
        _check(part == "outputs" or (part == "matrix" and not machine.matrix_from), f"values/{part}", branch)
        _check(isinstance(branch, dict), f"values/{part}", branch)
    machine.values = {**({} if machine.matrix_from else {"matrix": {}}), "outputs": {}, **machine.values}
    for name, fields in machine.outputs.items():
        _check(name in machine.neurons and isinstance(fields, dict), f"values/outputs/{name}", fields)
    if machine.matrix_from:
        _check(machine.matrix_from[0] in machine.neurons, "matrix_from", ".".join(machine.matrix_from))
        _check(isinstance(machine.matrix, dict), f"values/{'/'.join(machine.matrix_path)}", machine.matrix)


def _check(fits: Any, where: str, found: Any) -> None:
    if not fits:
        raise MachineError(f"the machine is damaged: its part {where:.200} cannot be {found!r:.80}")
