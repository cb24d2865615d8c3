"""Dataflow matrix machines: recurrent networks whose neurons pass V-values (trees, see `lapwing.trees`).

Model
-----
`Machine` holds `neurons: dict[name, Neuron]`, `values` (one tree of all its numbers: "matrix" and initial
"outputs"), `hard` (the paths in `values` that are fixed; all others are soft: trained), `output` (the neuron
whose *input* fields are the answers) and `matrix_from` (None, or the neuron and field whose output is the
matrix of the next cycle). `machine.matrix`, `machine.outputs`, `machine.links()`, `machine.soft()` look at
it; `with_values(tree)` and `with_options(**options)` give changed copies.

`Neuron` has `functions` (a tuple of `Activation`) and `fluid`. A plain neuron has one function. A fluid one
reads its mix from the input field ":function", gives the sum of mix[f.name] · f(inputs), and passes the mix
on as the output ":function"; names in the mix that are none of its functions do nothing.

`Activation` has `name`, `inputs`, `outputs` (field names), `function(inputs: dict, **options) -> dict` and
`options`. Call the activation itself, not its `function`: it fills missing fields with {} and turns numbers
into {":number": n}. `basis` is the name of the activation that it is under other field names ("accum" for
`accum_add_args`), "" if none.

Laws that a compiler may rely on
--------------------------------
- A missing key and a zero leaf mean the same to every activation function.
- A field always holds a tree; a bare number n there counts as {":number": n}.
- An activation traced by jax on trees of scalars gives the same V-values as on floats, so that
  `jax.eval_shape(activation, inputs)` tells which keys its outputs can have.
- Fields that a neuron does not read, rows for neurons that are not there and links from fields that are never
  written carry nothing.
- Kinks (relu at 0, the governor's limits) have zero gradient on the flat side and at the kink.

The interpreter (`interpret`) is the reference. Errors are `MachineError`s of one sentence.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._activation import Activation, MachineError, activation, find_activation
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
from ._compile import Program, compile  # noqa: A004
from ._interpret import Cycle, Trace, interpret
from ._machine import Link, Machine
from ._machines import (
    duplicate_detector,
    feedforward_student,
    lite_student,
    random_start,
    readable_detector,
    superfluid_start,
    superfluid_student,
    wave_machine,
)
from ._neuron import FUNCTION, Neuron
from ._population import Population
from ._prune import prune
from ._text import listing
from ._words import in_words

if TYPE_CHECKING:
    from ._picture import picture
    from ._plot import plot_answers
    from ._synthesis import Synthesis, Synthesized, synthesis_task, synthesize
    from ._synthesis_config import SynthesisConfig
    from ._synthesis_examples import Examples, by_field, errors_on, tests_of

# Pictures need matplotlib and synthesis needs the training loop, which take longer to import than all the rest: they
# come on first use.
_LATER = {
    "Examples": "_synthesis_examples",
    "Synthesis": "_synthesis",
    "SynthesisConfig": "_synthesis_config",
    "Synthesized": "_synthesis",
    "by_field": "_synthesis_examples",
    "errors_on": "_synthesis_examples",
    "picture": "_picture",
    "plot_answers": "_plot",
    "synthesis_task": "_synthesis",
    "synthesize": "_synthesis",
    "tests_of": "_synthesis_examples",
}

__all__ = [
    "FUNCTION",
    "Activation",
    "Cycle",
    "Examples",
    "Link",
    "Machine",
    "MachineError",
    "Neuron",
    "Population",
    "Program",
    "Synthesis",
    "SynthesisConfig",
    "Synthesized",
    "Trace",
    "accum",
    "accum_add_args",
    "activation",
    "by_field",
    "compare",
    "compare_scalars",
    "compile",
    "const_1",
    "const_end",
    "constant",
    "dot",
    "dot_product",
    "duplicate_detector",
    "eos",
    "errors_on",
    "feedforward_student",
    "find_activation",
    "in_words",
    "input_dummy",
    "input_text",
    "interpret",
    "listing",
    "lite_student",
    "max_norm_dict",
    "norm",
    "output",
    "output_dummy",
    "picture",
    "plot_answers",
    "prune",
    "random_start",
    "readable_detector",
    "superfluid_start",
    "superfluid_student",
    "synthesis_task",
    "synthesize",
    "tests_of",
    "timer",
    "timer_add_one",
    "wave_machine",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
