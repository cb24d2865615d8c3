"""A superfluid student in which the handcrafted duplicate detector fits, and plain neurons in place of fluid ones.

In the published student (`superfluid_student`) it does not: no layer reads the one before, so a value passes at most
two fluid neurons on its way to an answer, and the detector has three in a row (accum, norm, compare).

The functions of a fluid neuron write different fields. So a fluid neuron does the same as one plain neuron for each of
its functions, whose outputs are scaled by the mix. A machine whose fluid neurons have one function each is therefore a
part of `plain_student`, which has a neuron of every function at every place.
"""

from collections.abc import Mapping

from lapwing.trees import Path

from ._activation import Activation
from ._builtin import (
    accum,
    accum_add_args,
    compare,
    compare_scalars,
    dot,
    dot_product,
    max_norm_dict,
    norm,
)
from ._machine import Machine
from ._published import FLUID, FLUID_INPUTS, FLUID_OUTPUTS, SOURCES, _frame, _link_all, feedforward_student

PLAIN: dict[Activation, Activation] = {
    accum_add_args: accum,
    max_norm_dict: norm,
    dot_product: dot,
    compare_scalars: compare,
}
PLAIN_NAMES = {fluid.name: plain.name for fluid, plain in PLAIN.items()}
# Where the fields of a fluid neuron are in the plain one of each function.
INPUTS = {f.name: dict(zip(f.inputs, p.inputs, strict=True)) for f, p in PLAIN.items()}
OUTPUTS = {f.name: dict(zip(f.outputs, p.outputs, strict=True)) for f, p in PLAIN.items()}


def fluid_student(layers: int = 4, width: int = 4) -> Machine:
    """Fluid neurons in layers, each reading the sources, all layers before it and its own sum (`result`). About as
    large as the published superfluid student, which has 2906 soft leaves.

    >>> m = fluid_student()
    >>> len(m.soft())
    2886
    """
    m = _frame()
    before = list(SOURCES)
    for layer in range(1, layers + 1):
        names = [f"fluid-{layer}-{k}" for k in range(1, width + 1)]
        for name in names:
            m.fluid(name, FLUID, {function.name: 0.0 for function in FLUID})
            m.link(f"{name}.accum", f"{name}.result", 0.0)
            for field in FLUID_INPUTS:
                _link_all(m, f"{name}.{field}", before)
        before += [f"{name}.{field}" for name in names for field in FLUID_OUTPUTS]
    for field in m.neurons["output"].inputs:
        _link_all(m, f"output.{field}", before)
    return m


def plain_student(layers: int = 4, width: int = 4) -> Machine:
    """The feed-forward student of the same places, with accumulators whose links to themselves are trained too.

    >>> m = plain_student()
    >>> len(m.hard), len(m.soft()) - len(feedforward_student(4, 4).soft())
    (2, 16)
    """
    m = feedforward_student(layers, width)
    m.hard = {path for path in m.hard if not m.neurons[path[1]].functions[0].accumulator}
    return m


def plain_weights(values: Mapping[Path, float], functions: Mapping[str, str]) -> dict[Path, float]:
    """The links of `plain_student` that do what a fluid machine does, when each fluid neuron has the one function that
    `functions` names for it. The mix of a neuron scales what reads it; links to fields that its function does not have
    are left out; a link to the sum of an accumulator adds to what it accumulates.

    >>> mix = {("outputs", "fluid-1-1", ":function", "max_norm_dict"): 0.5}
    >>> links = {
    ...     ("matrix", "fluid-1-1", "dict", "eos", "char"): 3.0,
    ...     ("matrix", "output", "dict-2", "fluid-1-1", "norm"): 4.0,
    ... }
    >>> for path, weight in plain_weights({**mix, **links}, {"fluid-1-1": "max_norm_dict"}).items():
    ...     print(path[1:], weight)
    ('norm-1-1', 'dict', 'eos', 'char') 3.0
    ('output', 'dict-2', 'norm-1-1', 'norm') 2.0
    """
    found: dict[Path, float] = {}
    for path, weight in values.items():
        if path[0] != "matrix":
            continue
        _, to, to_field, source, source_field = path
        read, scale = (source, source_field), 1.0
        if source in functions:
            written = OUTPUTS[functions[source]].get(source_field)
            if written is None:
                continue
            read = _place(source, functions[source]), written
            scale = values.get(("outputs", source, ":function", functions[source]), 0.0)
        reader = (to, to_field)
        if to in functions:
            field = INPUTS[functions[to]].get(to_field)
            if field is None:
                continue
            if to_field == accum_add_args.inputs[0] and source != to:
                field = INPUTS[functions[to]][accum_add_args.inputs[1]]
            reader = _place(to, functions[to]), field
        place = ("matrix", *reader, *read)
        found[place] = found.get(place, 0.0) + scale * weight
    return found


def _place(name: str, function: str) -> str:
    """`fluid-1-2` as a norm is `norm-1-2`."""
    return name.replace("fluid", PLAIN_NAMES[function], 1)
