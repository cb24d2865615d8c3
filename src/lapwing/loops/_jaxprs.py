"""Small tools on jaxprs: take a part of one, run it, ask what depends on what.

A part of a program is again a jaxpr: some of its equations, with the variables they read as inputs. Nothing here
builds equations by hand; new code is made by tracing Python functions that run such parts.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import jax
import jax.core
from jax.extend import core
from jax.extend.core import primitives as p

Atom = core.Var | core.Literal

PRODUCTS = frozenset({p.dot_general_p, p.conv_general_dilated_p})
# Drawing numbers over a whole batch of keys at once need not give what drawing them one key at a time gives.
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


def variables(atoms: Iterable[Atom]) -> list[core.Var]:
    return [atom for atom in atoms if isinstance(atom, core.Var)]


def part(
    jaxpr: core.Jaxpr, eqns: Sequence[core.JaxprEqn], inputs: Sequence[core.Var], outputs: Sequence[Atom]
):
    """The sub-program that computes `outputs` from `inputs` with those of `eqns` that it needs."""
    return jaxpr.replace(constvars=[], invars=list(inputs), outvars=list(outputs), eqns=needed(eqns, outputs))


def without_constvars(jaxpr: core.Jaxpr) -> core.Jaxpr:
    """The same program with the constants it closes over as its first inputs."""
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])


def run(jaxpr: core.Jaxpr, *values: Any) -> list[Any]:
    return jax.core.eval_jaxpr(jaxpr, (), *values)


def needed(eqns: Sequence[core.JaxprEqn], outputs: Iterable[Atom]) -> list[core.JaxprEqn]:
    """The equations that `outputs` depend on, in order; those with side effects always stay."""
    wanted = set(variables(outputs))
    kept = []
    for eqn in reversed(eqns):
        if eqn.effects or not wanted.isdisjoint(eqn.outvars):
            wanted.update(variables(eqn.invars))
            kept.append(eqn)
    return kept[::-1]


def reads(eqns: Sequence[core.JaxprEqn], outputs: Iterable[Atom]) -> list[core.Var]:
    """What `eqns` and `outputs` read that `eqns` do not make: the inputs of that part, each once, in order."""
    made = {var for eqn in eqns for var in eqn.outvars}
    read = [var for eqn in eqns for var in variables(eqn.invars)] + variables(outputs)
    return list(dict.fromkeys(var for var in read if var not in made))


def trace(function: Callable[..., Any], avals: Sequence[Any]) -> tuple[core.Jaxpr, list[Any]]:
    """A jaxpr of `function` on flat arguments whose first inputs are the constants that it closes over."""
    arguments = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    closed = jax.make_jaxpr(function)(*arguments)
    return without_constvars(closed.jaxpr), closed.consts


def scan_counts(params: Any) -> tuple[int, int]:
    """How many constants and carries a `scan` equation has; jax 0.11 says it in another way than jax 0.10."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def inner_jaxprs(eqn: core.JaxprEqn) -> list[core.Jaxpr]:
    return list(core.jaxprs_in_params(eqn.params))


def holds_products(eqn: core.JaxprEqn) -> bool:
    """Whether the equation is a product or calls something that has one inside."""
    if eqn.primitive in PRODUCTS:
        return True
    return any(holds_products(inner) for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns)


def shape(atom: Atom) -> tuple[int, ...]:
    return cast(Any, atom.aval).shape


def dtype(atom: Atom) -> Any:
    return cast(Any, atom.aval).dtype


def size(atom: Atom) -> int:
    return math.prod(shape(atom))


def nbytes(atom: Atom) -> int:
    return size(atom) * getattr(dtype(atom), "itemsize", 4)


def depends_on(eqns: Sequence[core.JaxprEqn], sources: Iterable[core.Var]) -> set[core.Var]:
    """`sources` and all that is computed from them."""
    reached = set(sources)
    for eqn in eqns:
        if not reached.isdisjoint(variables(eqn.invars)):
            reached.update(eqn.outvars)
    return reached
