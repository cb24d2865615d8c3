"""The machines of the published experiments, as builders."""

from ._builtin import accum, compare, const_1, dot, eos, input_text, norm, output, timer
from ._machine import Machine


def duplicate_detector() -> Machine:
    """The handcrafted teacher. It answers "some character was seen twice" (how much more than once) on dict-1
    and "how many full stops so far" on dict-2.

    >>> len(duplicate_detector().links())
    11
    """
    m = Machine()
    m.neuron("timer", timer)
    m.neuron("input", input_text)
    m.neuron("accum", accum)
    m.neuron("norm", norm)
    m.neuron("const_1", const_1)
    m.neuron("compare", compare)
    m.neuron("eos", eos)
    m.neuron("dot", dot)
    m.neuron("output", output)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)
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
