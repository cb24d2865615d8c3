"""Builders of the machines of the published experiments.

A student has weights of zero; `random_start` draws those that training starts from.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from lapwing import trees

from ._activation import Activation
from ._builtin import (
    accum,
    accum_add_args,
    compare,
    compare_scalars,
    const_1,
    const_end,
    constant,
    dot,
    dot_product,
    eos,
    input_dummy,
    input_text,
    max_norm_dict,
    norm,
    output,
    output_dummy,
    timer,
    timer_add_one,
)
from ._machine import Machine
from ._serialization import FIXED_ROWS

SOURCES = ("input.char", "eos.char", "const_1.const_1")
INNER = (accum, norm, compare, dot)
LITE_WEIGHTS = Path(__file__).with_name("lite-weights.npz")
"""The weights of all links of `lite_student`, in their order; benchmarks/dmm_lite_weights.py writes it."""
LITE_FIELDS = ("dict", "dict-1", "dict-2", "norm", "dot", "true", "false")
FLUID = (accum_add_args, max_norm_dict, dot_product, compare_scalars)
FLUID_INPUTS = ("accum", "delta", "dict", "x", "y")
FLUID_OUTPUTS = ("result", "norm", "dot", "true", "false")


def _frame() -> Machine:
    """The parts of every duplicate detector: a timer that drives the input, two constants, and the output."""
    m = Machine()
    m.neuron("timer", timer)
    m.neuron("input", input_text)
    m.neuron("const_1", const_1)
    m.neuron("eos", eos)
    m.neuron("output", output)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)
    return m


def duplicate_detector() -> Machine:
    """The handcrafted teacher. It answers on dict-1 how many times more than once some character was seen, and on
    dict-2 how many full stops there were.

    >>> len(duplicate_detector().links())
    11
    """
    m = _frame()
    m.neuron("accum", accum)
    m.neuron("norm", norm)
    m.neuron("compare", compare)
    m.neuron("dot", dot)
    m.link("accum.dict-1", "accum.dict", 1.0)
    m.link("accum.dict-2", "input.char", 1.0)
    m.link("norm.dict", "accum.dict", 1.0)
    m.link("compare.dict-1", "norm.norm", 1.0)
    m.link("compare.dict-2", "const_1.const_1", 1.0)
    m.link("dot.dict-1", "accum.dict", 1.0)
    m.link("dot.dict-2", "eos.char", 1.0)
    m.link("output.dict-1", "compare.true", 1.0)
    m.link("output.dict-2", "dot.dot", 1.0)
    return m


def lite_student() -> Machine:
    """DMM Lite: links between all fields of 20 neurons, including fields that a neuron does not have. Those links are
    dead, but count in the regularization.

    >>> len(lite_student().soft())
    20306
    """
    m = _frame()
    names = [_add(m, activation, f"{k}") for activation in INNER for k in range(1, 6)]
    fields = [f"{name}.{field}" for name in names for field in LITE_FIELDS]
    for to in ["output.dict-1", "output.dict-2", *fields]:
        _link_all(m, to, [*SOURCES, *fields], dead=True)
    return m


def lite_start(below: float = 1e-3) -> Machine:
    """DMM Lite with its published weights after 1032 steps, from which the published losses start.

    **Arguments**: links with a |weight| smaller than `below` are left out; of 20,308 links the published run has 851.

    >>> m = lite_start()
    >>> len(m.links()), m.matrix["output"]["dict-2"]["norm-5"]
    (851, {'norm': 0.25095993})
    """
    with np.load(LITE_WEIGHTS) as file:
        weights = file["weights"]
    # By its shortest decimals, as in the published file; float(weight) would append digits.
    links = {
        path: float(str(weight))
        for path, weight in zip(trees.paths(lite_student().matrix), weights, strict=True)
    }
    matrix = trees.prune(trees.from_paths(links), below)
    return Machine.from_matrix(matrix, hard_rows=FIXED_ROWS, dead_links="keep")


def feedforward_student(
    layers: int = 5, width: int = 2, activations: Sequence[Activation] = INNER
) -> Machine:
    """Layers of `width` each of accum, norm, compare and dot, or of other `activations`, each reading all layers
    before it. Only the accumulators are recurrent, by a hard link to themselves.

    >>> m = feedforward_student()
    >>> len(m.soft()), len(m.hard)
    (1486, 12)
    >>> len(feedforward_student(6, activations=(accum, norm, dot)).soft())
    942
    """
    m = _frame()
    before = list(SOURCES)
    for layer in range(1, layers + 1):
        names = [
            _add(m, activation, f"{layer}-{k}") for activation in activations for k in range(1, width + 1)
        ]
        for name in names:
            for field in m.neurons[name].inputs:
                function = m.neurons[name].functions[0]
                if function.accumulator and field == function.inputs[0]:
                    m.link(f"{name}.{field}", f"{name}.{function.outputs[0]}", 1.0, hard=True)
                else:
                    _link_all(m, f"{name}.{field}", before)
        before += [f"{name}.{field}" for name in names for field in m.neurons[name].outputs]
    for field in m.neurons["output"].inputs:
        _link_all(m, f"output.{field}", before)
    return m


def readable_detector() -> Machine:
    """The published result of training and pruning the feed-forward student: 19 soft links.

    >>> len(readable_detector().soft())
    19
    """
    m = _frame()
    for activation, suffixes in ((accum, "1-2"), (norm, "2-1"), (dot, "2-2"), (compare, "1-2 3-1 4-2 5-1")):
        for suffix in suffixes.split():
            _add(m, activation, suffix)
    m.link("accum-1-2.dict-1", "accum-1-2.dict", 1.0, hard=True)
    m.link("accum-1-2.dict-2", "input.char", 0.76140845)
    m.link("norm-2-1.dict", "accum-1-2.dict", 0.6799909)
    m.link("norm-2-1.dict", "input.char", -0.5035984)
    m.link("dot-2-2.dict-1", "accum-1-2.dict", -0.68474704)
    m.link("dot-2-2.dict-1", "input.char", -0.5177265)
    m.link("dot-2-2.dict-2", "eos.char", -1.289527)
    m.link("compare-1-2.dict-1", "const_1.const_1", -0.44793695)
    m.link("compare-1-2.dict-2", "const_1.const_1", 0.4385935)
    m.link("compare-3-1.dict-1", "compare-1-2.false", -0.44086167)
    m.link("compare-3-1.dict-1", "norm-2-1.norm", 0.25769955)
    m.link("compare-3-1.dict-2", "compare-1-2.false", 0.44996113)
    m.link("compare-3-1.dict-2", "norm-2-1.norm", -0.25060785)
    m.link("compare-4-2.dict-1", "norm-2-1.norm", -0.5982746)
    m.link("compare-4-2.dict-2", "norm-2-1.norm", 0.60425675)
    m.link("compare-5-1.dict-1", "dot-2-2.dot", 0.67944056)
    m.link("compare-5-1.dict-2", "dot-2-2.dot", -0.689225)
    m.link("output.dict-1", "compare-3-1.false", -1.2568029)
    m.link("output.dict-1", "compare-4-2.false", 1.069833)
    m.link("output.dict-2", "compare-5-1.true", 1.0863824)
    return m


def superfluid_student(layers: int = 5, width: int = 4) -> Machine:
    """Fluid neurons in layers, with the matrix in `self.result`.

    As published, a layer does not read the group right before it: layer 0 reads nothing but itself, layer 1
    the sources, layer 2 also layer 0, and the output all layers but the last.

    >>> m = superfluid_student()
    >>> len(trees.paths(m.values)), len(m.soft())
    (2944, 2906)
    """
    m = Machine(matrix_from="self.result")
    fixed = (
        ("self", accum_add_args),
        ("timer", timer_add_one),
        ("input", input_dummy),
        ("const_1", const_1),
        ("eos", const_end),
        ("output", output_dummy),
    )
    for name, function in fixed:
        m.fluid(name, [function], {function.name: 1.0}, hard=True)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)
    m.link("self.accum", "self.result", 1.0, hard=True)
    m.initial("timer.timer", 0.0)
    m.initial("const_1.const_1", 1.0)
    m.initial("eos.char", {".": 1.0})
    before: list[str] = []
    latest = list(SOURCES)
    for layer in range(layers):
        names = [f"fluid-{layer}-{k}" for k in range(width)]
        for name in names:
            m.fluid(name, FLUID, {function.name: 0.0 for function in FLUID})
            m.link(f"{name}.accum", f"{name}.result", 0.0)
            for field in FLUID_INPUTS:
                _link_all(m, f"{name}.{field}", before)
        before += latest
        latest = [f"{name}.{field}" for name in names for field in FLUID_OUTPUTS]
    for field in ("dict-1", "dict-2"):
        _link_all(m, f"output.{field}", before)
    return m


def superfluid_start() -> Machine:
    """The superfluid student with the initial weights of its published runs.

    >>> m = superfluid_start()
    >>> round(m.matrix["output"]["dict-1"]["eos"]["char"], 4)
    0.1384
    """
    # The published weights were drawn with jax's older threefry.
    with jax.threefry_partitionable(False):
        return random_start(superfluid_student(), jax.random.PRNGKey(0), 0.1)


def wave_machine() -> Machine:
    """A self-modifying machine in which one link moves: the row self.delta reads update-1, then update-2,
    update-3, 1 …

    >>> wave_machine().matrix["self"]["delta"]
    {'update-1': {'result': 1.0}}
    """
    m = Machine(matrix_from="self.result")
    m.neuron("self", accum_add_args)
    m.link("self.accum", "self.result", 1.0)
    for k, following in ((1, 2), (2, 3), (3, 1)):
        row = {f"update-{k}": {"result": -1.0}, f"update-{following}": {"result": 1.0}}
        change = {"self": {"delta": row}}
        m.neuron(f"update-{k}", constant, value=change)
        m.initial(f"update-{k}.result", change)
    m.link("self.delta", "update-1.result", 1.0)
    return m


def random_start(machine: Machine, key: PRNGKeyArray, spread: float) -> Machine:
    """Returns the machine with every soft leaf drawn from a normal distribution of standard deviation `spread`.

    Leaf i of `values` in sorted-key order, the hard ones included, uses key i of `split(key, leaves)`.

    >>> m = random_start(duplicate_detector(), jax.random.key(0), 0.1)
    >>> abs(m.matrix["norm"]["dict"]["accum"]["dict"]) < 1, m.matrix["timer"]["timer"]["timer"]["timer"]
    (True, 1.0)
    """
    leaves = trees.paths(machine.values)
    draws = jax.vmap(jax.random.normal)(jax.random.split(key, len(leaves))) * spread
    drawn = dict(zip(leaves, draws.tolist(), strict=True))
    return machine.with_values(trees.from_paths({**drawn, **{path: leaves[path] for path in machine.hard}}))


def _add(m: Machine, activation: Activation, suffix: str) -> str:
    name = f"{activation.name}-{suffix}"
    m.neuron(name, activation)
    return name


def _link_all(m: Machine, to: str, sources: Iterable[str], dead: bool = False) -> None:
    for source in sources:
        m.link(to, source, 0.0, dead=dead)
