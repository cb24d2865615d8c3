"""The loop of a function as the passes get it, and what is in it."""

import jax

from lapwing.jaxprs import Loop, equations, interpret, loop_of
from lapwing.loops._bound import BoundLoop
from lapwing.loops._costs import Costs
from lapwing.loops._rewrite import _inlined

AUTO, ALWAYS = Costs("auto", "cpu"), Costs("always", "cpu")


def bound_loop(fn, *args) -> BoundLoop:
    """The only loop of a function, on its values: those that are constants of the program are known."""
    closed = jax.make_jaxpr(fn)(*args)
    found = []

    def rule(eqn, inputs):
        if eqn.primitive.name == "scan":
            loop, closed_over = loop_of(eqn)
            found.append(BoundLoop(loop, *loop.split_inputs([*closed_over, *inputs])))

    interpret(closed.jaxpr, [*closed.consts, *args], rule)
    return _inlined(found[0], AUTO)


def count(loop: Loop, name: str) -> int:
    return sum(eqn.primitive.name == name for eqn in equations(loop.jaxpr))
