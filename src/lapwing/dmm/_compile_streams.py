"""What the known neurons of a machine (timer, text, constants) show over time: data, computed by the
interpreter.
"""

from typing import Any

import numpy as np

from lapwing import trees

from ._interpret import interpret
from ._layout_flow import Flow
from ._layout_stages import Plan
from ._machine import Machine


def known_streams(flow: Flow, plan: Plan, cycles: int, **options: Any) -> dict[int, np.ndarray]:
    """What stands in the known fields at the beginning of each cycle: class -> [cycles, keys, fields]."""
    run = interpret(_known_machine(flow, plan), max(cycles - 1, 0), **options)
    history = [run.machine.outputs, *(cycle.outputs for cycle in run.cycles)][:cycles]
    found = {}
    for c, fields in plan.streams.items():
        places = {path: k for k, path in enumerate(plan.classes[c])}
        found[c] = np.zeros((cycles, len(places), len(fields)))
        for f, (name, field) in enumerate(fields):
            for cycle, outputs in enumerate(history):
                for path, leaf in trees.paths(outputs.get(name, {}).get(field, {})).items():
                    if path in places:
                        found[c][cycle, places[path], f] = leaf
    return found


def _known_machine(flow: Flow, plan: Plan) -> Machine:
    machine = Machine()
    machine.neurons = {name: flow.machine.neurons[name] for name in sorted(flow.known)}
    links = {
        (*to, *source): flow.leaf(place)
        for (to, source), place in plan.weights.items()
        if to[0] in flow.known
    }
    start = {
        (name, field, *path): flow.leaf(place)
        for (name, field, path), place in flow.initial.items()
        if name in flow.known
    }
    machine.values = {"matrix": trees.from_paths(links), "outputs": trees.from_paths(start)}
    return machine
