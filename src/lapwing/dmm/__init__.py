"""Dataflow matrix machines: recurrent networks whose neurons pass V-values (trees, see `lapwing.trees`).

This layer is the language and its compiler; `lapwing.synthesis` trains and prunes machines, `lapwing.report` draws.

Model
-----
`Machine` has `neurons: dict[name, Neuron]`, `values` (one tree of all its numbers: "matrix" and initial "outputs"),
`hard` (the paths in `values` that are fixed; all others are soft: trained), `output` (the neuron whose *input* fields
are the answers) and `matrix_from` (None, or the neuron and field whose output is the matrix of the next cycle). One
that can grow has `newborn`, what a neuron that comes to be during a run is, and `capacity`, how many there can be.

`Neuron` has `functions` (a tuple of `Activation`) and `fluid`. A plain neuron has one function. A fluid one reads its
mix from the input field ":function", returns the sum of mix[f.name] · f(inputs), and passes the mix on as the output
":function"; names in the mix that are none of its functions do nothing.

`Activation` has a name, the names of its fields, `function(inputs: dict, **options) -> dict`, `options`, and what is
declared about it. Call the activation itself, not its `function`: it fills missing fields with {} and turns numbers
into {":number": n}.

Laws that the compiler relies on
--------------------------------
- A missing key and a zero leaf mean the same to every activation function.
- A field is always a tree; a bare number n there counts as {":number": n}.
- A number n and {":number": n} mean the same to every activation function, wherever they are in a tree. `compile`
  probes an activation that can meet both, and refuses one that tells them apart.
- An activation is a function of its inputs and options alone. `compile` traces it twice, and refuses one with state.
- An activation traced by jax on trees of scalars returns the same V-values as on floats, so `jax.eval_shape(activation,
  inputs)` has all keys that its outputs can have.
- Fields that a neuron does not read, rows for neurons that do not exist (and do not come to be) and links from fields
  that are never written carry nothing.
- Kinks (relu at 0, the governor's limits) have zero gradient on the flat side and at the kink.

The interpreter (`interpret`) is the reference. Errors are `MachineError`s of one sentence.
"""

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
    sprout,
    timer,
    timer_add_one,
)
from ._compile import Text, compile  # noqa: A004
from ._compile_arrays import ArrayForm
from ._fluid import fluid_student, plain_student
from ._interpret import Cycle, Trace, interpret, step
from ._library import LibraryMachine, from_library, library
from ._machine import Link, Machine
from ._neuron import FUNCTION, Neuron
from ._program import Program
from ._published import (
    duplicate_detector,
    feedforward_student,
    lite_start,
    lite_student,
    random_start,
    readable_detector,
    superfluid_start,
    superfluid_student,
    wave_machine,
)
from ._self_modifying import growing_machine, learnable_wave
from ._text import listing
from ._words import in_words

__all__ = [
    "FUNCTION",
    "Activation",
    "ArrayForm",
    "Cycle",
    "LibraryMachine",
    "Link",
    "Machine",
    "MachineError",
    "Neuron",
    "Program",
    "Text",
    "Trace",
    "accum",
    "accum_add_args",
    "activation",
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
    "feedforward_student",
    "find_activation",
    "fluid_student",
    "from_library",
    "growing_machine",
    "in_words",
    "input_dummy",
    "input_text",
    "interpret",
    "learnable_wave",
    "library",
    "listing",
    "lite_start",
    "lite_student",
    "max_norm_dict",
    "norm",
    "output",
    "output_dummy",
    "plain_student",
    "random_start",
    "readable_detector",
    "sprout",
    "step",
    "superfluid_start",
    "superfluid_student",
    "timer",
    "timer_add_one",
    "wave_machine",
]
