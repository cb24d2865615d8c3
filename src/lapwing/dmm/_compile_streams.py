"""The outputs of the known neurons (timer, text, constants) over time: data, computed by the interpreter."""

from typing import Any

import numpy as np

from lapwing import trees

from ._interpret import interpret
from ._keys import nested_path
from ._layout_flow import Flow
from ._layout_stages import Plan
from ._machine import Machine


def known_streams(flow: Flow, plan: Plan, cycles: int, **options: Any) -> dict[int, np.ndarray]:
    """The known fields at the beginning of each cycle: class -> [cycles, keys, fields]."""
    run = interpret(_known_machine(flow, plan), max(cycles - 1, 0), **options)
    history = [run.machine.outputs, *(cycle.outputs for cycle in run.cycles)][:cycles]
    found = {}
    for c, fields in plan.streams.items():
        rows = {path: k for k, path in enumerate(plan.classes[c])}
        found[c] = np.zeros((cycles, len(rows), len(fields)))
        for f, (name, field) in enumerate(fields):
            keys = frozenset(flow.layout.outputs[name, field])
            for cycle, outputs in enumerate(history):
                for path, leaf in trees.paths(outputs.get(name, {}).get(field, {})).items():
                    row = rows.get(nested_path(path, keys))
                    if row is not None:
                        found[c][cycle, row, f] = leaf
    return found


def _known_machine(flow: Flow, plan: Plan) -> Machine:
    machine = Machine()
    machine.neurons = {name: flow.machine.neurons[name] for name in sorted(flow.known)}
    links = {
        (*to, *source): flow.leaf(index)
        for (to, source), index in plan.weights.items()
        if to[0] in flow.known
    }
    start = {
        (name, field, *path): flow.leaf(index)
        for (name, field, path), index in flow.initial.items()
        if name in flow.known
    }
    machine.values = {"matrix": trees.from_paths(links), "outputs": trees.from_paths(start)}
    return machine
