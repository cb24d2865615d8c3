"""Machines that edit their own network matrix, with soft numbers in the edits: what they do to themselves is learned.

An edit is a V-value in the form of the matrix, held by an accumulator that reads itself with weight 1. It is the
initial output of that neuron, so its numbers are parameters like any other.
"""

from lapwing.trees import Tree

from ._activation import MachineError
from ._builtin import accum_add_args, constant, max_norm_dict, output, sprout, timer
from ._machine import Machine


def learnable_wave(period: int, neurons: int | None = None) -> Machine:
    """A wave like that of `wave_machine`, whose period is in soft numbers, and which answers with one of its own links.

    Each of the `neurons` (by default as many as the period) takes the link self.delta from itself and gives a share of
    it to every other one, by a soft number: here all to the next, and the last of the period to the first. The answer
    dict-1 is the link to the first: 1 once in a period.

    >>> from lapwing import dmm
    >>> dmm.interpret(dmm.learnable_wave(period=3, neurons=5), cycles=7).answers["dict-1"]
    [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """
    neurons = period if neurons is None else neurons
    if not 2 <= period <= neurons:
        raise MachineError(
            f"expected a period from 2 to the number of neurons, but got the period {period} and {neurons} neurons; "
            f"write learnable_wave({max(period, 2)}, neurons={max(period, 2)})"
        )
    m = _holding_itself()
    m.neuron("output", output)
    for k in range(1, neurons + 1):
        _hold(m, f"update-{k}")
        m.initial(f"update-{k}.result", _share(k, -1.0))
        for other in range(1, neurons + 1):
            if other != k:
                follows = other == (k + 1 if k < period else 1)
                m.initial(f"update-{k}.result", _share(other, float(follows)), hard=False)
    m.link("self.delta", "update-1.result", 1.0, hard=True)
    # The answer is a weight of the matrix, read by a link of the same matrix.
    m.link("output.dict-1", "self.result", 1.0, key=("self", "delta", "update-1", "result"), hard=True)
    return m


def growing_machine(capacity: int = 8, *, period: int = 3, keep: float = 0.8, delta: float = 0.2) -> Machine:
    """A machine that adds neurons and links to itself: every `period` cycles a chain gets one more cell, until it has
    `capacity` cells.

    A cell keeps a part of itself, adds a part of the cell before it, and takes the norm of that cell; the answers are
    the sums of what all cells keep (dict-1) and of their norms (dict-2). The template of a cell is in the neuron `dna`
    and its mix of the two functions in the neuron `kind`: seven soft numbers, which every cell gets its links and its
    functions from when it comes to be.

    >>> from lapwing import dmm
    >>> trace = dmm.interpret(dmm.growing_machine(), cycles=9)
    >>> trace.born[-1], [round(x, 2) for x in trace.answers["dict-1"]]
    (('cell-1', 'cell-2'), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.36, 0.49])
    >>> [round(x, 2) for x in trace.answers["dict-2"]]
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    """
    m = _holding_itself()
    m.grow([accum_add_args, max_norm_dict], capacity=capacity)
    for name, function in {"timer": timer, "output": output}.items():
        m.neuron(name, function)
    m.neuron("sprout", sprout, period=period, births=capacity)
    m.neuron("cell-0", constant, value=1.0)
    _hold(m, "dna")
    _hold(m, "kind")
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("sprout.timer", "timer.timer", 1.0, hard=True)
    m.link("sprout.template", "dna.result", 1.0, hard=True)
    m.link("self.delta", "sprout.result", 1.0, hard=True)
    m.initial("kind.result", {"accum_add_args": 1.0, "max_norm_dict": 1.0}, hard=False)
    m.initial("dna.result", {"cell-{n}": {":function": {"kind": {"result": 1.0}}}})
    before = "cell-{n-1}"
    cell = {
        "accum": {"cell-{n}": {"result": keep}},
        "delta": {before: {"result": delta}},
        "dict": {before: {"result": 1.0}},
    }
    answers = {"dict-1": {"cell-{n}": {"result": 1.0}}, "dict-2": {"cell-{n}": {"norm": 1.0}}}
    m.initial("dna.result", {"cell-{n}": cell, "output": answers}, hard=False)
    return m


def _holding_itself() -> Machine:
    m = Machine(matrix_from="self.result")
    m.neuron("self", accum_add_args)
    m.link("self.accum", "self.result", 1.0, hard=True)
    return m


def _hold(m: Machine, name: str) -> None:
    """A neuron that keeps its initial value."""
    m.neuron(name, accum_add_args)
    m.link(f"{name}.accum", f"{name}.result", 1.0, hard=True)


def _share(k: int, amount: float) -> Tree:
    return {"self": {"delta": {f"update-{k}": {"result": amount}}}}
