"""From a machine to a `Program`: analyse it, plan its stages, and build its functions.

The text that a machine reads is data to its program, so one program can run on several texts at once: the machine is
laid out for the characters of all of them, and the stages are vmapped over the outputs of the known neurons.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import suggestion
from lapwing.trees import Tree

from ._activation import MachineError
from ._checks import split_address
from ._compile_flat import flat_run
from ._compile_stages import staged_run
from ._compile_streams import known_streams
from ._layout import Field
from ._layout_flow import Flow, analyse
from ._layout_stages import Plan, plan_stages
from ._machine import Machine
from ._program import Program

Text = str | Sequence[str | Tree]


def compile(  # noqa: A001
    machine: Machine,
    cycles: int,
    *,
    watch: Iterable[str] = (),
    texts: Sequence[Text] | None = None,
    **options: Any,
) -> Program:
    """Compiles a machine for runs of N cycles.

    **Arguments**

    - `watch`: output fields (`"accum.dict"`) to return besides the answers; this needs a slower loop.
    - `texts`: several texts to run on at once, instead of the option `text`.
    - `options`: those of `interpret`: `text`, `governor`, `accumulator_gradient`, `norm_ties`, and those of your own
      activations.

    >>> import jax
    >>> from lapwing import dmm
    >>> program = dmm.compile(dmm.duplicate_detector(), cycles=140, text="test string.")
    >>> targets = jax.jit(program.answers)(program.start)
    >>> gradient = jax.jit(jax.grad(program.loss))(0.9 * program.start, targets)
    >>> gradient.shape, int(program.soft.sum())
    ((11,), 9)
    >>> program = dmm.compile(dmm.duplicate_detector(), cycles=35, texts=["aab", "abb", "abc"])
    >>> jax.jit(program.answers)(program.start)[:, -1].tolist()
    [[1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]
    """
    if not isinstance(cycles, int) or cycles < 0:
        raise MachineError(f"a run has a whole number of cycles, 0 or more, but got {cycles!r}")
    if texts is not None:
        options["text"] = _joined(texts)
    machine = machine.with_options(**options)
    fields = [split_address(address) for address in watch]
    _check_outputs(machine, fields)
    flow = analyse(machine, fields)
    plan = plan_stages(flow)
    if plan is None:
        if texts is not None:
            raise MachineError(
                "a machine that rewrites itself or is watched is compiled for one text; pass text=... instead of texts"
            )
        flat = flat_run(flow, cycles)
        return Program(flow, cycles, flat, jax.vmap(lambda values: flat(values)[0], -1, -1))
    if texts is None:
        staged = staged_run(flow, plan, known_streams(flow, plan, cycles), cycles)
    else:
        staged = _on_each(
            [known_streams(flow, plan, cycles, text=text) for text in texts], flow, plan, cycles
        )
    return Program(flow, cycles, lambda values: (staged(values), jnp.zeros((cycles, 0))), staged)


def _check_outputs(machine: Machine, watched: Sequence[Field]) -> None:
    for name, field in watched:
        known = machine.neurons[name].outputs if name in machine.neurons else ()
        if field not in known:
            every = [f"{n}.{f}" for n, neuron in machine.neurons.items() for f in neuron.outputs]
            raise MachineError(
                f"there is no output field {name}.{field} to watch; {suggestion(f'{name}.{field}', every)}"
            )
    if machine.output not in machine.neurons and not watched:
        raise MachineError(
            f"the machine has no output neuron {machine.output!r}; {suggestion(machine.output, machine.neurons)}; "
            "name the neuron that answers with Machine(output=...), or fields to watch with compile(..., watch=[...])"
        )


def _joined(texts: Sequence[Text]) -> Text:
    """One text with the characters of all."""
    if not texts or not all(texts):
        raise MachineError(f"expected texts that are not empty, but got {list(texts)!r}")
    return tuple(item for text in texts for item in text)


def _on_each(
    streams: list[dict[int, np.ndarray]], flow: Flow, plan: Plan, cycles: int
) -> Callable[[jax.Array], jax.Array]:
    stacked = {c: np.stack([each[c] for each in streams]) for c in streams[0]}

    def run(values: jax.Array) -> jax.Array:
        known = {c: jnp.asarray(stream, values.dtype) for c, stream in stacked.items()}
        return jax.vmap(lambda stream: staged_run(flow, plan, stream, cycles)(values))(known)

    return run
