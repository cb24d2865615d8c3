"""What a function does, read from its trace, without running it."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

from lapwing import jaxprs

from ._partition import is_array, partition


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """The jaxpr of `function(*args)` as a function of the arrays (or their shapes) in `args`, and these arrays."""
    given = partition(args, lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct), "args")
    return jax.make_jaxpr(lambda *leaves: function(*given.combine(leaves)))(*given.leaves), given


def places_of(primitive: str, function: Callable[..., Any], *args: Any) -> list[str]:
    """The source lines (file and line) where a function uses a primitive, each once."""
    program, _ = trace(function, *args)
    uses = [eqn for eqn in jaxprs.equations(program.jaxpr) if eqn.primitive.name == primitive]
    return list(dict.fromkeys(map(jaxprs.file_and_line, uses)))


def inputs_of_outputs(function: Callable[..., Any], *args: Any) -> list[bool]:
    """For each output, whether it depends on any input or constant, as far as the trace shows.

    >>> inputs_of_outputs(lambda x: (x + 1, jax.numpy.zeros(3)), jax.numpy.ones(2))
    [True, False]
    """
    program, _ = trace(function, *args)
    return [bool(inputs) for inputs in jaxprs.dependencies(program.jaxpr)]
