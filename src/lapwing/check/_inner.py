"""The programs inside loops, as programs of their own: what their inputs depend on is known from outside."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from lapwing import jaxprs

from ._program import Program, opened


@dataclass(frozen=True)
class Inner:
    """The body of a loop. `outside` is, for each of its inputs that is the same in every step or one row of an array,
    that value of the program around it."""

    program: Program
    eqn: core.JaxprEqn
    outside: dict[core.Var, Any]


def inner_programs(program: Program) -> Iterator[Inner]:
    """The bodies of the scans and whiles of a program; those of loops inside them follow when they are read in turn.

    >>> import jax
    >>> from ._program import read
    >>> rnn = lambda p, b: jax.lax.scan(lambda h, x: (h * p + x, None), 0.0, b)[0]
    >>> body = next(inner_programs(read(rnn, params=1.0 * jax.numpy.ones(()), batch=jax.numpy.ones(3)))).program
    >>> [eqn.primitive.name for eqn in body.eqns], {name: len(given) for name, given in body.inputs.items()}
    (['mul', 'add'], {'params': 2, 'batch': 2})
    """
    names = {name: program.dependent(name) for name in program.inputs}
    for eqn in program.eqns:
        body = _body(eqn)
        if body is None:
            continue
        closed, given, carried = body
        try:
            closed = opened(closed)
        except Exception:  # A body with effects, or of values that cannot be traced again.
            continue
        invars = closed.jaxpr.invars
        labelled = {
            name: {
                var
                for var, atom in zip(invars, given, strict=True)
                if isinstance(atom, core.Var) and atom in reached
            }
            for name, reached in names.items()
        }
        _spread(closed.jaxpr, labelled, carried)
        inputs = {
            name: {f"{name}[{n}]": var for n, var in enumerate(invars) if var in ours}
            for name, ours in labelled.items()
        }
        inside = set(invars[carried.start : carried.stop])
        outside = {var: atom for var, atom in zip(invars, given, strict=True) if var not in inside}
        yield Inner(Program(closed, inputs), eqn, outside)


def _body(eqn: core.JaxprEqn) -> tuple[core.ClosedJaxpr, list[Any], range] | None:
    """The program of one step, what is given to its inputs, and which of them are carried."""
    if eqn.primitive.name == "scan":
        closed = eqn.params["jaxpr"]
        consts, carry = jaxprs.scan_counts(eqn.params)
        return closed, list(eqn.invars), range(consts, consts + carry)
    if eqn.primitive.name == "while":
        closed, skipped = eqn.params["body_jaxpr"], eqn.params["cond_nconsts"]
        consts = eqn.params["body_nconsts"]
        return closed, list(eqn.invars[skipped:]), range(consts, len(closed.jaxpr.invars))
    return None


def _spread(jaxpr: core.Jaxpr, labelled: dict[str, set[core.Var]], carried: range) -> None:
    """What is carried depends on what it is made of in the step before."""
    before = jaxpr.invars[carried.start : carried.stop]
    after = jaxpr.outvars[: len(carried)]
    for ours in labelled.values():
        while True:
            reached = jaxprs.depends_on(jaxpr.eqns, ours)
            new = {
                var
                for var, out in zip(before, after, strict=True)
                if isinstance(out, core.Var) and out in reached and var not in ours
            }
            if not new:
                break
            ours |= new


def everywhere(program: Program) -> Iterator[Program]:
    """A program, and those of all loops inside it."""
    yield program
    for each in inner_programs(program):
        yield from everywhere(each.program)
