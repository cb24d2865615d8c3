"""What a function does, read from its trace, without running it."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core, source_info_util

from ._parts import is_array, parts


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """The program of `function(*args)` as a function of the arrays in `args` (or their shapes), and these arrays in
    their parts."""
    given = parts(args, lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct), "args")
    return jax.make_jaxpr(lambda *leaves: function(*given.join(leaves)))(*given.leaves), given


def places_of(primitive: str, function: Callable[..., Any], *args: Any) -> list[str]:
    """Where in the source a function uses a primitive, each place once: file and line."""
    program, _ = trace(function, *args)
    return list(
        dict.fromkeys(place_of(eqn) for eqn in equations(program.jaxpr) if eqn.primitive.name == primitive)
    )


def place_of(eqn: core.JaxprEqn) -> str:
    """File and line that an equation comes from, without the folders around the file.

    A loop that was written as `lw.scan` is where its step begins: the equation itself was made in Lapwing.
    """
    inner = (each for jaxpr in core.jaxprs_in_params(eqn.params) for each in equations(jaxpr))
    places = (place for each in itertools.chain([eqn], inner) for place in _places(each))
    return next(places, "an unknown place")


def _places(eqn: core.JaxprEqn) -> list[str]:
    frames = source_info_util.summarize(eqn.source_info, num_frames=20).split("\n")[::-1]
    own = [frame.replace("\\", "/").rsplit(" (", 1)[0] for frame in frames]
    return [
        ":".join(frame.rsplit("/", 1)[-1].split(":")[:2]) for frame in own if "/lapwing/loops/" not in frame
    ]


def equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """All equations, also those inside others."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from equations(inner)


def inputs_of_outputs(function: Callable[..., Any], *args: Any) -> list[bool]:
    """For each output, whether it depends on any input or constant, as far as the trace shows.

    >>> inputs_of_outputs(lambda x: (x + 1, jax.numpy.zeros(3)), jax.numpy.ones(2))
    [True, False]
    """
    program, _ = trace(function, *args)
    known: set[Any] = {*program.jaxpr.invars, *program.jaxpr.constvars}
    for eqn in program.jaxpr.eqns:
        if any(not isinstance(atom, core.Literal) and atom in known for atom in eqn.invars):
            known.update(eqn.outvars)
    return [not isinstance(atom, core.Literal) and atom in known for atom in program.jaxpr.outvars]
