"""Simplifies a small machine until it reads as if written by hand, with the same answers.

Five moves, each kept only if the error stays small: an antisymmetric neuron (compare) reads a source on one side, not
on both; neurons that compute the same are merged; neurons that only pass a value on are removed; each neuron is scaled
so that its largest weight is 1, and its readers scale back (as its `linearity` allows); weights close to 0, 1 and -1
become that.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import trees
from lapwing.dmm import Activation, Machine

from ._wiring import Wirings, error_of

SNAP_WITHIN = 0.15
SAME_WITHIN = 0.02
SMALL_ERROR = 5e-4
UNKNOWN = Activation("mix", (), (), lambda inputs: {})


class Wire(NamedTuple):
    """A link without its weight."""

    to: str
    to_field: str
    source: str
    source_field: str


Weights = dict[Wire, float]  # of the soft links


class Judge:
    """Computes the error of a machine with other weights, and with any of the student's links between its neurons."""

    def __init__(self, wirings: Wirings, machine: Machine):
        self.used = machine.used()
        student = wirings.student
        links = {link[:4]: link for link in student.links() if {link.to, link.source} <= self.used}
        values = trees.paths(machine.values)
        for to, to_field, source, source_field in links:
            values.setdefault((*student.matrix_path, to, to_field, source, source_field), 0.0)
        hard = {path: leaf for path, leaf in values.items() if path in student.hard and path[0] == "matrix"}
        unused = {path for path in hard if not {path[1], path[3]} <= self.used}
        self.machine = student.with_values(
            trees.from_paths({path: leaf for path, leaf in values.items() if path not in unused})
        )
        programs = [each.program(self.machine, **wirings.options) for each in wirings.examples]
        self._indices = {
            Wire(*path[1:]): i for i, path in enumerate(programs[0].paths) if path[0] == "matrix"
        }
        self._soft = {wire for wire, i in self._indices.items() if programs[0].soft[i]}
        self._start = np.asarray(programs[0].start)
        self._error = jax.jit(error_of(list(zip(programs, wirings.examples, strict=True))))

    def weights(self, machine: Machine) -> Weights:
        found = {Wire(*link[:4]): float(link.weight) for link in machine.links() if not link.hard}
        return {wire: weight for wire, weight in found.items() if wire in self._soft}

    def error(self, weights: Weights) -> float:
        """The error with these links; infinite if the student cannot have one of them."""
        if not self._soft >= weights.keys():
            return np.inf
        leaves = self._start.copy()
        for wire in self._soft:
            leaves[self._indices[wire]] = weights.get(wire, 0.0)
        return float(self._error(jnp.asarray(leaves)))

    def build(self, weights: Weights) -> Machine:
        """The machine with these links, without idle neurons."""
        kept = {}
        for path, leaf in trees.paths(self.machine.values).items():
            soft = path[0] == "matrix" and Wire(*path[1:]) in self._soft
            if not soft:
                kept[path] = leaf
            elif Wire(*path[1:]) in weights:
                kept[path] = weights[Wire(*path[1:])]
        made = self.machine.with_values(trees.from_paths(kept))
        return without_idle(made)


def without_idle(machine: Machine) -> Machine:
    """The machine without the neurons that no answer depends on, and without their links."""
    used = machine.used()
    values = {
        path: leaf
        for path, leaf in trees.paths(machine.values).items()
        if path[0] != "matrix" or {path[1], path[3]} <= used
    }
    made = machine.with_values(trees.from_paths(values))
    made.neurons = {name: neuron for name, neuron in machine.neurons.items() if name in used}
    return made


def tidied(
    wirings: Wirings, machine: Machine, error: float, *, allowed: float
) -> tuple[Machine, float, list[str]]:
    """The machine after all moves that the error allows, its error, and the moves."""
    judge = Judge(wirings, machine)
    weights, done = judge.weights(machine), []
    limit = min(max(2 * error, SMALL_ERROR), allowed)
    error = judge.error(weights)
    while True:
        for moves in (_folded, _merged, _passed_over, _scaled, _snapped):
            accepted = (
                (what, w, e) for what, w in moves(judge.machine, weights) if (e := judge.error(w)) <= limit
            )
            found = next(accepted, None)
            if found:
                what, weights, error = found
                done.append(what)
                break  # One move may make an earlier one possible.
        else:
            break
    return judge.build(weights), error, done


def _folded(machine: Machine, weights: Weights) -> Iterator[tuple[str, Weights]]:
    for name in sorted({wire.to for wire in weights}):
        if not _function(machine, name).antisymmetric:
            continue
        first, second = machine.neurons[name].inputs
        for wire in [w for w in weights if w.to == name]:
            other = wire._replace(to_field=second if wire.to_field == first else first)
            if other in weights:
                changed = dict(weights)
                changed[wire] -= changed.pop(other)
                yield f"{name} reads {wire.source} once", changed


def _merged(machine: Machine, weights: Weights) -> Iterator[tuple[str, Weights]]:
    inside = sorted({wire.source for wire in weights} & {wire.to for wire in weights})
    for i, one in enumerate(inside):
        for two in inside[i + 1 :]:
            if machine.neurons[one].functions != machine.neurons[two].functions:
                continue
            ratio = _ratio(_reads(machine, weights, one), _reads(machine, weights, two))
            if ratio is None:
                continue
            if _function(machine, one).antisymmetric:
                mirrored = dict(zip(fields := machine.neurons[one].outputs, fields[::-1], strict=True))
                yield f"{two} is {one}", _moved(weights, two, one, abs(ratio), mirrored if ratio < 0 else {})
            else:
                for sign in (1.0, -1.0):
                    yield f"{two} is {one}", _moved(weights, two, one, sign * ratio)


def _reads(machine: Machine, weights: Weights, name: str) -> dict[tuple[str, ...], float]:
    """What a neuron reads; if it is antisymmetric, what the difference of its inputs is made of."""
    wires = {wire: weight for wire, weight in weights.items() if wire.to == name}
    if not _function(machine, name).antisymmetric:
        return {wire[1:]: weight for wire, weight in wires.items()}
    first = machine.neurons[name].inputs[0]
    return {wire[2:]: weight if wire.to_field == first else -weight for wire, weight in wires.items()}


def _ratio(one: dict[tuple[str, ...], float], two: dict[tuple[str, ...], float]) -> float | None:
    """The factor between the weights, if it is the same for all."""
    if one.keys() != two.keys() or not one or not all(one.values()):
        return None
    ratios = np.array([two[key] / one[key] for key in one])
    close = np.all(np.abs(ratios - ratios.mean()) <= SAME_WITHIN * np.abs(ratios.mean()))
    return float(ratios.mean()) if close else None


def _moved(
    weights: Weights, two: str, one: str, ratio: float, fields: Mapping[str, str] | None = None
) -> Weights:
    """What read `two` reads `one`, perhaps another field of it."""
    changed = {wire: weight for wire, weight in weights.items() if two not in (wire.to, wire.source)}
    for wire, weight in weights.items():
        if wire.source == two:
            instead = wire._replace(
                source=one, source_field=(fields or {}).get(wire.source_field, wire.source_field)
            )
            changed[instead] = changed.get(instead, 0.0) + ratio * weight
    return changed


def _passed_over(machine: Machine, weights: Weights) -> Iterator[tuple[str, Weights]]:
    for name in sorted({wire.source for wire in weights} & {wire.to for wire in weights}):
        incoming = [wire for wire in weights if wire.to == name]
        if len(incoming) != 1:
            continue
        (read,) = incoming
        for sign in (1.0, -1.0):
            changed = {wire: weight for wire, weight in weights.items() if name not in (wire.to, wire.source)}
            for wire, weight in weights.items():
                if wire.source == name:
                    direct = wire._replace(source=read.source, source_field=read.source_field)
                    changed[direct] = changed.get(direct, 0.0) + sign * weight * weights[read]
            yield f"{name} only passed {read.source} on", changed


def _scaled(machine: Machine, weights: Weights) -> Iterator[tuple[str, Weights]]:
    for name in sorted({wire.source for wire in weights} & {wire.to for wire in weights}):
        linearity = _function(machine, name).linearity
        if linearity == "none":
            continue
        changed, output_scale = dict(weights), 1.0
        fields = machine.neurons[name].inputs if linearity == "multilinear" else (None,)
        for field in fields:
            reads = [w for w in weights if w.to == name and field in (None, w.to_field)]
            if linearity != "multilinear":
                reads = [w for w in reads if w.source != name]  # A loop has the same weight at any scale.
            if not reads:
                continue
            largest = max((weights[wire] for wire in reads), key=abs)
            factor = abs(largest) if linearity == "positive" else largest
            output_scale *= abs(factor) if linearity == "absolute" else factor
            changed.update({wire: weights[wire] / factor for wire in reads})
        for wire in weights:
            if wire.source == name and (wire.to != name or linearity == "multilinear"):
                changed[wire] = weights[wire] * output_scale
        if any(abs(changed[wire] - weights[wire]) > 1e-9 for wire in weights):
            yield f"{name} scaled", changed


def _snapped(machine: Machine, weights: Weights) -> Iterator[tuple[str, Weights]]:
    near = {wire: float(np.clip(np.round(weight), -1, 1)) for wire, weight in weights.items()}
    near = {wire: at for wire, at in near.items() if 0 < abs(weights[wire] - at) < SNAP_WITHIN}
    groups = [near, *({wire: at} for wire, at in near.items())] if len(near) > 1 else [near]
    for group in filter(None, groups):
        changed = {wire: group.get(wire, weight) for wire, weight in weights.items()}
        yield f"{len(group)} weights set to 0, 1 or -1", {w: x for w, x in changed.items() if x}


def _function(machine: Machine, name: str) -> Activation:
    """The activation of a neuron; a mix of several has no declarations."""
    neuron = machine.neurons[name]
    return UNKNOWN if neuron.fluid else neuron.functions[0]
