"""Traces a neuron's function, and refuses one that breaks a law that the compiler relies on.

An activation that counts its calls, or remembers what it read in a variable of Python, would be compiled as it was in
the one call that jax traced. So it is traced twice, and both traces have to be the same. One that tells a missing key
from a zero would compute something else on all keys that can occur than on those that are there; a few random numbers
find that out.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend import core

from lapwing import trees
from lapwing.jaxprs import inner_jaxprs
from lapwing.trees import NUMBER, Path

from ._activation import Activation, MachineError
from ._keys import place
from ._neuron import Neuron

PROBED = 50  # numbers in branches, of one function


def output_shapes(neuron: Neuron, inputs: trees.Tree) -> trees.Tree:
    """The outputs with a shape at every leaf."""

    def checked(given: trees.Tree) -> trees.Tree:
        outputs = neuron(given)
        _check_numbers(neuron, outputs)
        return outputs

    try:
        return jax.eval_shape(checked, inputs)
    except jax.errors.UnexpectedTracerError as error:  # It kept a number of a trace before this one.
        raise _stateful(neuron, inputs).stateful_error() from error


def _check_numbers(neuron: Neuron, outputs: trees.Tree) -> None:
    names = " and ".join(repr(function.name) for function in neuron.functions)
    try:
        leaves = trees.paths(outputs)
    except trees.TreeError as error:
        raise MachineError(f"the activation {names} returned no V-value: {error}") from error
    for path, leaf in leaves.items():
        if np.result_type(leaf).kind == "b":  # Where it has a value, True or False is refused above.
            raise MachineError(
                f"a V-value has numbers at its leaves, but the activation {names} put a condition at "
                f"{trees.show_path(path)}; write jnp.where(condition, 1.0, 0.0)"
            )


def trace(neuron: Neuron, inputs: trees.Tree) -> tuple[core.ClosedJaxpr, trees.Tree]:
    """The jaxpr of a neuron and the shapes of its outputs."""
    if all(function.accumulator for function in neuron.functions):
        return _fresh_trace(neuron, inputs)  # Declared to be a sum, and perhaps of a whole network matrix.
    try:
        (first, shapes), (second, _) = (_fresh_trace(neuron, inputs) for _ in range(2))
    except jax.errors.UnexpectedTracerError as error:
        raise _stateful(neuron, inputs).stateful_error() from error
    if not _same(first, second):
        raise _stateful(neuron, inputs).stateful_error()
    return first, shapes


def check_laws(neuron: Neuron, keys: Iterable[tuple[str, Path]]) -> None:
    """Refuses a function that tells a missing key from a zero, or a number n from {":number": n}, found out with random
    numbers. The compiler has every key that can occur, always in the same place; the interpreter as it comes."""
    draw = random.Random(0)
    leaves = {(field, *path): draw.uniform(0.5, 1.5) for field, path in keys}
    # An accumulator is declared to be a sum, and may hold a whole network matrix.
    for function in (function for function in neuron.functions if not function.accumulator):
        read = {path: leaf for path, leaf in leaves.items() if path[0] in function.inputs}
        for share in (0.3, 0.6, 0.9, 1.0):
            kept = {path: leaf for path, leaf in read.items() if draw.random() >= share}
            if not _agree(function, kept, {**dict.fromkeys(read, 0.0), **kept}):
                raise MachineError(
                    f"the activation {function.name!r} tells a missing key from a zero, so it cannot be compiled; a "
                    "key that is not there and one that is 0 have to give the same V-value"
                )
        for path in [path for path in read if len(path) > 2 and path[-1] == NUMBER][:PROBED]:
            field, *inner = path
            number = (field, *(place(tuple(inner)) or (NUMBER,)))
            others = {other: leaf for other, leaf in read.items() if other[: len(number)] != number}
            if not _agree(function, {**others, path: read[path]}, {**others, number: read[path]}):
                raise MachineError(
                    f"the activation {function.name!r} tells a number n in its input {field!r} from "
                    f"{{':number': n}}, and in this machine {trees.show_path(number[1:])} can be both, so it cannot "
                    "be compiled; read numbers with trees.number, and combine values with trees.add and trees.scale"
                )


def _agree(function: Activation, *inputs: Mapping[Path, float]) -> bool:
    """Whether the outputs are the same V-values for these two forms of the inputs."""
    left, right = (_outputs(function, each) for each in inputs)
    if left is None or right is None:
        return left is right
    return all(
        np.isclose(left.get(key, 0.0), right.get(key, 0.0), rtol=1e-5, atol=1e-6, equal_nan=True)
        for key in {*left, *right}
    )


def _outputs(function: Activation, inputs: Mapping[Path, float]) -> dict[Path, float] | None:
    """The numbers by their places, or None if it raises an error, whatever that is."""
    try:
        made = function(trees.from_paths(inputs))
        return {place(path): float(leaf) for path, leaf in trees.paths(made).items()}
    except Exception:
        return None


def _fresh_trace(neuron: Neuron, inputs: trees.Tree) -> tuple[core.ClosedJaxpr, trees.Tree]:
    # A new function each time: jax caches traces by function.
    return jax.make_jaxpr(lambda given: neuron(given), return_shape=True)(inputs)


def _same(first: core.ClosedJaxpr, second: core.ClosedJaxpr) -> bool:
    found, other = list(_parts(first.jaxpr)), list(_parts(second.jaxpr))
    return (
        len(found) == len(other)
        and all(map(_equal, found, other))
        and all(map(_equal, first.consts, second.consts))
    )


def _parts(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """What is done with what: operations, the positions of variables, and constants."""
    positions: dict[core.Var, int] = {}

    def read(atoms: Any) -> Iterator[Any]:
        for atom in atoms:
            yield atom.val if isinstance(atom, core.Literal) else positions.setdefault(atom, len(positions))

    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        yield from read(eqn.invars)
        yield from read(eqn.outvars)
        for inner in inner_jaxprs(eqn):
            yield from _parts(inner)
    yield from read(jaxpr.outvars)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (str, int)) or a is b:
        return a == b
    is_float = all(np.issubdtype(np.result_type(each), np.floating) for each in (a, b))
    return bool(np.array_equal(a, b, equal_nan=is_float))  # A constant NaN is the same in both traces.


def _stateful(neuron: Neuron, inputs: trees.Tree) -> Activation:
    """Which of the functions of a neuron is not the same in every call."""
    for function in neuron.functions[1:]:
        try:
            (first, _), (second, _) = (_fresh_trace(Neuron((function,)), inputs) for _ in range(2))
            differs = not _same(first, second)
        except jax.errors.UnexpectedTracerError:
            differs = True
        if differs:
            return function
    return neuron.functions[0]
