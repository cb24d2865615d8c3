"""From a machine to a `Program`: analyse it, plan its stages, and build its functions.

The text that a machine reads is data to its program, so one program can run on several texts at once: the machine is
laid out for the characters of all of them, and the stages are vmapped over the outputs of the known neurons. Where
training could change when the text is read (a clock with soft links), every text has its own program.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import suggestion
from lapwing.trees import Tree

from ._activation import MachineError
from ._checks import check_cycles, split_address
from ._compile_flat import Run, flat_run
from ._compile_stages import Staged, staged_run
from ._compile_streams import known_streams
from ._layout import Field, unfold
from ._layout_flow import Flow, analyse
from ._layout_stages import Plan, plan_stages
from ._machine import Machine, check_machine
from ._program import Program
from .native import is_installed, native_run

Engine = Literal["auto", "native", "xla"]
Text = str | Sequence[str | float | Tree]
"""What a machine reads: a text, or characters, numbers and trees one after the other."""


def compile(  # noqa: A001
    machine: Machine,
    cycles: int,
    *,
    watch: Iterable[str] = (),
    texts: Sequence[Text] | None = None,
    engine: Engine = "auto",
    **options: Any,
) -> Program:
    """Compiles a machine for runs of N cycles.

    **Arguments**

    - `watch`: output fields (`"accum.dict"`) to return besides the answers; this needs a slower loop.
    - `texts`: several texts to run on at once, instead of the option `text`.
    - `engine`: how a single machine is computed on a CPU. "native" is native code, which needs `pip install
      lapwing[native]`; "xla" is the compiler of jax; "auto", the default, is native code where that is installed and
      can hold the machine.
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
    cycles = check_cycles(cycles)
    _check_engine(engine)
    if texts is not None and options.get("text") is not None:
        raise MachineError("expected text='aab' or texts=['aab', 'abc'], but got both; pass one of them")
    machine = check_machine(machine).with_options(**options)
    fields = [split_address(address) for address in watch]
    if texts is not None:
        if fields:
            raise MachineError(
                "a machine with fields to watch is compiled for one text; pass text=... instead of texts"
            )
        _check_outputs(machine, fields)
        return _program_for_texts(machine, cycles, texts, engine)
    grown = unfold(machine)
    _check_outputs(grown, fields)
    flow = analyse(grown, fields)
    return Program(machine, flow, cycles, *_runs(flow, cycles, engine))


def _check_engine(engine: Engine) -> None:
    if engine not in get_args(Engine):
        raise MachineError(f"engine is one of {', '.join(get_args(Engine))}, not {engine!r}")
    if engine == "native" and not is_installed():
        raise MachineError(
            'engine="native" needs llvmlite: pip install lapwing[native]; engine="xla" needs nothing'
        )


Runs = tuple[Run, Callable[[jax.Array], jax.Array]]  # of one machine, and of a batch of machines


def _runs(flow: Flow, cycles: int, engine: Engine) -> Runs:
    plan = plan_stages(flow)
    if plan is None:
        if engine == "native":
            raise MachineError(
                "native code is for machines that do not rewrite themselves, read no parts of fields and have no "
                'fields to watch; compile this one with engine="xla"'
            )
        flat = flat_run(flow, cycles)
        return flat, jax.vmap(lambda values: flat(values)[0], -1, -1)
    streams, answers = known_streams(flow, plan, cycles), _by_engine(flow, plan, cycles, engine)
    return _answers_alone(lambda values: answers(values, streams), cycles)


def _by_engine(flow: Flow, plan: Plan, cycles: int, engine: Engine, texts: int = 1) -> Staged:
    staged = staged_run(flow, plan, cycles)
    if engine == "xla" or cycles == 0 or (engine == "auto" and not is_installed()):
        return staged
    return native_run(flow, plan, cycles, staged, texts=texts, required=engine == "native")


def _answers_alone(answers: Callable[[jax.Array], jax.Array], cycles: int) -> Runs:
    """Of a machine in which nothing is watched and no neuron comes to be."""
    return lambda values: (answers(values), jnp.zeros((cycles, 0)), jnp.zeros(cycles, int)), answers


def _program_for_texts(machine: Machine, cycles: int, texts: Sequence[Text], engine: Engine) -> Program:
    """One program for all texts, if what the machine reads is known before the run. In a machine that rewrites itself,
    reads parts of fields, or whose clock is trained, each text has a program of its own."""
    joined = machine.with_options(text=_joined(texts))
    flow = analyse(unfold(joined))
    plan = plan_stages(flow)
    if plan is not None and _readers(machine) <= flow.known:
        streams = [known_streams(flow, plan, cycles, text=text) for text in texts]
        answers = _by_engine(flow, plan, cycles, engine, len(texts))
        return Program(joined, flow, cycles, *_answers_alone(_on_each(streams, answers), cycles))
    each = [_runs(analyse(unfold(machine.with_options(text=text))), cycles, engine) for text in texts]
    return Program(joined, flow, cycles, *_one_by_one(each))


def _one_by_one(runs: Sequence[Runs]) -> Runs:
    def run(values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        answers, watched, born = zip(*(one(values) for one, _ in runs), strict=True)
        return jnp.stack(answers), watched[0], jnp.stack(born)

    return run, lambda values: jnp.stack([batch(values) for _, batch in runs])


def _readers(machine: Machine) -> set[str]:
    """The neurons that read the text."""
    return {
        name for name, neuron in machine.neurons.items() if any("text" in f.options for f in neuron.functions)
    }


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
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise MachineError(f"expected texts in a list, like texts=['aab', 'abc'], but got {texts!r}")
    for text in texts:
        if not isinstance(text, Sequence) or isinstance(text, bytes | bytearray) or not text:
            raise MachineError(
                "expected texts that are not empty, each a string or a list of V-values, "
                f"but one is {text!r:.80}"
            )
    return tuple(item for text in texts for item in text)


def _on_each(streams: list[dict[int, np.ndarray]], answers: Staged) -> Callable[[jax.Array], jax.Array]:
    stacked = {c: np.stack([each[c] for each in streams]) for c in streams[0]}

    def run(values: jax.Array) -> jax.Array:
        known = {c: jnp.asarray(stream, values.dtype) for c, stream in stacked.items()}
        # The size is given because a machine whose answers read nothing has no streams.
        return jax.vmap(lambda stream: answers(values, stream), axis_size=len(streams))(known)

    return run
