"""What a function does, read from its trace, without running it."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core, source_info_util

from lapwing import jaxprs

from ._partition import arrays_in, is_array, partition
from ._report import check_function

# Where jax keeps functions that are made of others; stop_gradient itself, and the machinery of tracing, is elsewhere.
_FUNCTIONS = ("/jax/_src/nn/", "/jax/_src/numpy/", "/jax/_src/scipy/", "/jax/_src/ops/")

UNKNOWN = "an unknown place"


def trace(function: Callable[..., Any], *args: Any) -> tuple[core.ClosedJaxpr, Any]:
    """The jaxpr of `function(*args)` as a function of the arrays (or their shapes) in `args`, and these arrays."""
    check_function(function)
    given = partition(args, lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct), "args")
    # Of a result that has functions in it, such as an Equinox module, the arrays.
    on_arrays = lambda *leaves: arrays_in(function(*given.combine(leaves)))  # noqa: E731
    return jaxprs.readable(on_arrays)(*given.leaves), given


def places_of(primitive: str, program: core.ClosedJaxpr) -> list[str]:
    """The lines (file and line) of the user's where a program uses a primitive, each once; libraries are left out."""
    uses = [eqn for eqn in jaxprs.equations(program.jaxpr) if eqn.primitive.name == primitive]
    return list(dict.fromkeys(filter(None, map(own_place, uses))))


def own_place(eqn: core.JaxprEqn) -> str | None:
    """The line that an equation comes from, if it is the user's own and not one of a function of a library."""
    files = [frame.file_name.replace("\\", "/") for frame in getattr(eqn.source_info.traceback, "frames", ())]
    inner = list(itertools.takewhile(is_installed, files))
    last = source_info_util.summarize(eqn.source_info, num_frames=20).split("\n")[-1]
    is_library = is_installed(last) or any(part in file for file in inner for part in _FUNCTIONS)
    return None if is_library or not last else _short(last)


def place(eqn: core.JaxprEqn) -> str:
    """The innermost line of the user's code that an equation comes from, also of one that a library wrote."""
    frames = source_info_util.summarize(eqn.source_info, num_frames=20).split("\n")[::-1]
    own = [frame for frame in frames if frame and not is_installed(frame)]
    return _short(own[0]) if own else jaxprs.file_and_line(eqn) or UNKNOWN


def custom_function(eqn: core.JaxprEqn) -> str | None:
    """The function with a custom derivative that an equation calls, as `name at path:line`; None for others."""
    if not eqn.primitive.name.startswith(("custom_jvp_call", "custom_vjp_call")):
        return None
    info = getattr(eqn.params["call_jaxpr"].jaxpr, "debug_info", None)
    return getattr(info, "func_src_info", None) or "a function"


def custom_functions(program: core.ClosedJaxpr) -> dict[str, str]:
    """All functions with a custom derivative that a program calls, with their names and lines, the user's own first."""
    found = [name for eqn in jaxprs.equations(program.jaxpr) if (name := custom_function(eqn))]
    ordered = sorted(dict.fromkeys(found), key=is_installed)
    return {each: _named(each) for each in ordered if not ("/jax/" in each and is_installed(each))}


def _named(function: str) -> str:
    name, _, where = function.partition(" at ")
    return f"{name} at {_short(where)}" if where else name


def called_at(eqn: core.JaxprEqn) -> tuple[str, int, str] | None:
    """File and line of the user's that called jax for an equation, and the function of jax that it called; None where a
    library called it."""
    called = ""
    for frame in getattr(eqn.source_info.traceback, "frames", ()):
        if not is_installed(frame.file_name, "jax"):
            return None if is_installed(frame.file_name) else (frame.file_name, frame.line_num, called)
        called = frame.function_name
    return None


def is_installed(frame: str, package: str = "") -> bool:
    """Whether a line is one of an installed package, or of this one."""
    path, own = frame.replace("\\", "/"), package and f"{package}/"
    return f"/site-packages/{own}" in path or f"/dist-packages/{own}" in path


def _short(frame: str) -> str:
    path = frame.replace("\\", "/").rsplit(" (", 1)[0]
    return ":".join(path.rsplit("/", 1)[-1].split(":")[:2])


def inputs_of_outputs(function: Callable[..., Any], *args: Any) -> list[bool]:
    """For each output, whether it depends on any input or constant, as far as the trace shows.

    >>> inputs_of_outputs(lambda x: (x + 1, jax.numpy.zeros(3)), jax.numpy.ones(2))
    [True, False]
    """
    program, _ = trace(function, *args)
    return [bool(inputs) for inputs in jaxprs.dependencies(program.jaxpr)]
