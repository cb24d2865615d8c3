"""Where stop_gradient cuts what it should keep, read from the program of a loss."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._cut_loops import check_loops
from ._jaxprs import own_place, place
from ._live import STOP, behind, live, opens, without_repeats
from ._program import Program, among, read
from ._report import Report, fail
from ._straight import check_straight_through

# What passes a sum on, term by term.
_PASSES = (
    "neg",
    "reduce_sum",
    "convert_element_type",
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "transpose",
    "copy",
)


def cuts(
    loss: Callable[..., Any], params: PyTree, batch: PyTree, *, trained: Collection[str] | None = None
) -> Report:
    """No stop_gradient in `loss(params, batch)` may cut what it is there to keep; nothing is computed.

    It finds a loop over the data whose state is detached in every step, a straight-through estimator without a gradient
    or with the wrong sign, and a term of the loss that depends on the parameters and has no gradient.

    **Arguments**

    - `trained`: the paths of the trained leaves, as `params['w']`; by default all.

    >>> import jax, jax.numpy as jnp
    >>> def loss(w, x):
    ...     soft = jax.nn.sigmoid(x @ w)
    ...     hard = jnp.round(soft)
    ...     return jnp.mean((hard + jax.lax.stop_gradient(soft) - soft - 1) ** 2)
    >>> cuts(loss, jnp.ones(3), jnp.ones((8, 3)))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the straight-through estimator at ... has the wrong sign: its value is right, ...
    """
    program = read(loss, opens=opens, params=params, batch=batch)
    jaxpr = without_repeats(program.closed.jaxpr)
    program = Program(core.ClosedJaxpr(jaxpr, program.closed.consts), program.inputs)
    weights = [var for path, var in program.inputs["params"].items() if trained is None or path in trained]
    check_straight_through(jaxpr)
    check_loops(jaxpr, weights, list(program.inputs["batch"].values()))
    _check_terms(program, weights)
    stops = sum(eqn.primitive.name == STOP and own_place(eqn) is not None for eqn in jaxprs.equations(jaxpr))
    return Report("cuts", f"{stops} uses of stop_gradient in the loss, none cuts too much", {"stops": stops})


def _check_terms(program: Program, weights: list[core.Var]) -> None:
    """Each term of the loss that depends on the parameters has a gradient. Left alone is a value that is stopped in one
    term and live in another, as where one loss is shown and another one trained."""
    eqns, loss = program.eqns, program.closed.jaxpr.outvars[0]
    reached, flows = jaxprs.depends_on(eqns, weights), live(eqns, weights)
    terms: dict[core.Var, float] = defaultdict(float)
    for term, factor in _terms(program, loss, reached):
        terms[term] += factor
    alive = {term: factor for term, factor in terms.items() if term in flows}
    for term, factor in terms.items():
        if term in flows or not alive:
            continue
        stops = [
            eqn
            for eqn in behind(eqns, [term])
            if eqn.primitive.name == STOP and own_place(eqn) is not None and eqn.invars[0] in flows
        ]
        if not stops or any(_is_used(program, eqn, alive) for eqn in stops):
            continue
        inside = _terms(program, term, reached, through=(STOP,))
        if any(np.isfinite(alive.get(each, np.nan) * factor * own) for each, own in inside):
            continue
        where = place(stops[0])
        fail(
            "cuts",
            f"a term of the loss depends on the parameters and has no gradient: stop_gradient at {where} cuts the "
            "only way to them, so that the term changes nothing",
            "which side is detached: the target (the teacher, the label, the advantage) should be, what is trained "
            "should not",
            [where],
        )


def _is_used(program: Program, stop: core.JaxprEqn, alive: Iterable[core.Var]) -> bool:
    """Whether what is stopped goes into a live term too."""
    of_stopped = jaxprs.depends_on(program.eqns, stop.outvars)
    return any(term in of_stopped for term in alive)


def _terms(
    program: Program, atom: Any, reached: set[core.Var], factor: float = 1.0, through: Collection[str] = ()
) -> Iterator[tuple[core.Var, float]]:
    """The terms of a sum that depend on the parameters, each with the number that it is multiplied by; nan if that is
    no number."""
    if not isinstance(atom, core.Var) or atom not in reached:
        return
    eqn = program.makers.get(atom)
    name = eqn.primitive.name if eqn is not None else ""
    if eqn is None:
        yield atom, factor
    elif name in ("add", "add_any", "sub", "neg", *_PASSES, *through):
        signs = (1.0, -1.0) if name == "sub" else (-1.0,) if name == "neg" else (1.0, 1.0)
        for each, sign in zip(eqn.invars, signs, strict=False):
            yield from _terms(program, each, reached, sign * factor, through)
    elif name == "div" and not among(eqn.invars[1], reached):
        yield from _terms(program, eqn.invars[0], reached, factor / _number(eqn.invars[1]), through)
    elif name == "mul" and sum(among(each, reached) for each in eqn.invars) == 1:
        one, other = eqn.invars if among(eqn.invars[0], reached) else eqn.invars[::-1]
        yield from _terms(program, one, reached, factor * _number(other), through)
    else:
        yield atom, factor


def _number(atom: Any) -> float:
    """A number of the program; nan for a value that is computed."""
    is_number = isinstance(atom, core.Literal) and np.ndim(atom.val) == 0
    return float(np.asarray(atom.val)) if is_number else np.nan
