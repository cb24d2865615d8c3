"""Reading a jaxpr: its variables, its equations, what depends on what, and which line of source it comes from.

A part of a program is again a jaxpr: some of its equations, with the variables they read as inputs. Nothing here
builds equations by hand; new code is made by tracing Python functions that run such parts.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.extend import core, source_info_util
from jax.extend.core import primitives as p

Atom = core.Var | core.Literal

PRODUCTS = frozenset({p.dot_general_p, p.conv_general_dilated_p})
# A batch of keys need not draw the numbers that the keys draw one by one.
RANDOM = frozenset(
    {
        p.random_bits_p,
        p.random_gamma_p,
        p.rng_bit_generator_p,
        p.rng_uniform_p,
        p.random_fold_in_p,
        p.random_split_p,
        p.random_seed_p,
    }
)

_CHOOSING = frozenset({"cond", "while", "pure_callback", "io_callback", "debug_callback", "ffi_call"})


def variables(atoms: Iterable[Atom]) -> list[core.Var]:
    """The variables among `atoms`, without the literals."""
    return [atom for atom in atoms if isinstance(atom, core.Var)]


def shape(atom: Atom) -> tuple[int, ...]:
    return cast(Any, atom.aval).shape


def dtype(atom: Atom) -> Any:
    return cast(Any, atom.aval).dtype


def is_weak(atom: Atom) -> bool:
    """Whether its dtype gives way to others, as that of a Python number does."""
    return cast(Any, atom.aval).weak_type


def size(atom: Atom) -> int:
    return math.prod(shape(atom))


def nbytes(atom: Atom) -> int:
    return size(atom) * getattr(dtype(atom), "itemsize", 4)


def inner_jaxprs(eqn: core.JaxprEqn) -> list[core.Jaxpr]:
    return list(core.jaxprs_in_params(eqn.params))


def equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """All equations, including those inside others.

    >>> closed = jax.make_jaxpr(jax.jit(lambda x: x + 1))(1.0)
    >>> [eqn.primitive.name for eqn in equations(closed.jaxpr)]
    ['jit', 'add']
    """
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def constants(closed: core.ClosedJaxpr) -> Iterator[np.ndarray]:
    """All arrays and literals in a program and in the programs inside it, in the order of its text."""
    yield from map(np.asarray, closed.consts)
    for eqn in closed.jaxpr.eqns:
        yield from (np.asarray(atom.val) for atom in eqn.invars if isinstance(atom, core.Literal))
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from constants(core.ClosedJaxpr(value, ()) if isinstance(value, core.Jaxpr) else value)


def _is_program(value: Any) -> bool:
    return isinstance(value, core.ClosedJaxpr | core.Jaxpr)


def needed(eqns: Sequence[core.JaxprEqn], outputs: Iterable[Atom]) -> list[core.JaxprEqn]:
    """The equations that `outputs` depend on, in order, and those with side effects."""
    wanted = set(variables(outputs))
    kept = []
    for eqn in reversed(eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            wanted.update(variables(eqn.invars))
            kept.append(eqn)
    return kept[::-1]


def reads(eqns: Sequence[core.JaxprEqn], outputs: Iterable[Atom]) -> list[core.Var]:
    """The inputs of `eqns` and `outputs`: variables that they read and `eqns` do not define, each once, in order."""
    made = {var for eqn in eqns for var in eqn.outvars}
    read = [var for eqn in eqns for var in variables(eqn.invars)] + variables(outputs)
    return list(dict.fromkeys(var for var in read if var not in made))


def part(
    jaxpr: core.Jaxpr, eqns: Sequence[core.JaxprEqn], inputs: Sequence[core.Var], outputs: Sequence[Atom]
) -> core.Jaxpr:
    """The program that computes `outputs` from `inputs` with those of `eqns` that it needs."""
    return jaxpr.replace(constvars=[], invars=list(inputs), outvars=list(outputs), eqns=needed(eqns, outputs))


def without_constvars(jaxpr: core.Jaxpr) -> core.Jaxpr:
    """The same program with the constants it closes over as its first inputs."""
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])


def trace(function: Callable[..., Any], avals: Sequence[Any]) -> tuple[core.Jaxpr, list[Any]]:
    """A jaxpr of `function` on flat arguments, whose first inputs are the constants that it closes over."""
    arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    closed = jax.make_jaxpr(function)(*arguments)
    return without_constvars(closed.jaxpr), closed.consts


def depends_on(eqns: Sequence[core.JaxprEqn], sources: Iterable[core.Var]) -> set[core.Var]:
    """`sources` and everything computed from them."""
    reached = set(sources)
    for eqn in eqns:
        if not reached.isdisjoint(variables(eqn.invars)):
            reached.update(eqn.outvars)
    return reached


def dependencies(jaxpr: core.Jaxpr) -> list[frozenset[core.Var]]:
    """For each output, the inputs and constants that it depends on.

    >>> jaxpr = jax.make_jaxpr(lambda x, y: (x + 1, x * y, 3.0))(1.0, 2.0).jaxpr
    >>> [len(inputs) for inputs in dependencies(jaxpr)]
    [1, 2, 0]
    """
    reached = {var: frozenset([var]) for var in [*jaxpr.constvars, *jaxpr.invars]}
    for eqn in jaxpr.eqns:
        inputs = frozenset().union(*(reached[var] for var in variables(eqn.invars)))
        reached |= dict.fromkeys(eqn.outvars, inputs)
    return [reached[atom] if isinstance(atom, core.Var) else frozenset() for atom in jaxpr.outvars]


def holds_products(eqn: core.JaxprEqn) -> bool:
    """Whether the equation is a matrix product or a convolution, or calls something that has one inside."""
    if eqn.primitive in PRODUCTS:
        return True
    return any(holds_products(inner) for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns)


def chooses(eqn: core.JaxprEqn) -> bool:
    """Whether the equation decides by its values what is executed, or calls the host. For a batch, jax executes all
    branches, and a while loop until the last of the batch has ended: a branch that is never taken may never end.

    >>> def f(x):
    ...     return jax.lax.cond(x > 0, lambda: 1 / x, lambda: 0.0) + 1
    >>> [(eqn.primitive.name, chooses(eqn)) for eqn in jax.make_jaxpr(f)(1.0).eqns if not eqn.primitive.name == "gt"]
    [('convert_element_type', False), ('cond', True), ('add', False)]
    """
    if eqn.primitive.name in _CHOOSING:
        return True
    return any(chooses(inner) for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns)


def flops(eqn: core.JaxprEqn) -> int:
    """Multiplications and additions of one product."""
    out = size(eqn.outvars[0])
    if eqn.primitive is p.dot_general_p:
        (contracted, _), _ = eqn.params["dimension_numbers"]
        operand = shape(eqn.invars[0])
        return 2 * out * math.prod(operand[axis] for axis in contracted)
    if eqn.primitive is p.conv_general_dilated_p:
        kernel = shape(eqn.invars[1])
        out_features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * out * math.prod(kernel) // max(out_features, 1)
    return 0


def site(eqn: core.JaxprEqn) -> str:
    """Where in the user's source the equation comes from: file, line and column."""
    return source_info_util.summarize(eqn.source_info).rsplit(" (", 1)[0]


def file_and_line(eqn: core.JaxprEqn) -> str:
    """Name of the file and line that an equation comes from.

    A loop written as `lw.scan` is reported where its step begins, since Lapwing makes the equation itself.
    """
    inner = (each for jaxpr in inner_jaxprs(eqn) for each in equations(jaxpr))
    found = (place for each in itertools.chain([eqn], inner) for place in _user_frames(each))
    return next(found, "an unknown place")


def _user_frames(eqn: core.JaxprEqn) -> list[str]:
    frames = source_info_util.summarize(eqn.source_info, num_frames=20).split("\n")[::-1]
    paths = [frame.replace("\\", "/").rsplit(" (", 1)[0] for frame in frames]
    return [
        ":".join(path.rsplit("/", 1)[-1].split(":")[:2])
        for path in paths
        if "/lapwing/loops/" not in path and "/lapwing/jaxprs/" not in path
    ]
