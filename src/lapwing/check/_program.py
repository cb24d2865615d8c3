"""The program of a loss, to be read: traced, its calls opened, its inputs by name.

Several mistakes are written in the program itself, and reading is surer than trying: which equation made a value, what
depends on the parameters, where the same value is used twice. Loops and branches keep their programs inside; calls
(jit, custom derivatives, remat) are opened, so that a softmax of a library is the equations it is made of.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from lapwing import jaxprs

from ._partition import arrays_in, is_array, partition
from ._report import check_function

CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "checkpoint",
    "remat",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
)

# What changes the shape or the dtype of a value, and not the value.
SHAPES = frozenset(
    [
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "expand_dims",
        "convert_element_type",
        "transpose",
        "stop_gradient",
        "copy",
        "copy_p",
        "rev",
        "reduce_precision",
        "optimization_barrier",
    ]
)


@dataclass(frozen=True)
class Program:
    """`inputs` has the variables of each argument by path."""

    closed: core.ClosedJaxpr
    inputs: dict[str, dict[str, core.Var]]

    @property
    def eqns(self) -> list[core.JaxprEqn]:
        return self.closed.jaxpr.eqns

    @functools.cached_property
    def makers(self) -> dict[core.Var, core.JaxprEqn]:
        """The equation that makes each variable."""
        return {var: eqn for eqn in self.eqns for var in eqn.outvars}

    @functools.cached_property
    def readers(self) -> dict[core.Var, list[core.JaxprEqn]]:
        """The equations that read each variable."""
        found: dict[core.Var, list[core.JaxprEqn]] = {}
        for eqn in self.eqns:
            for var in jaxprs.variables(eqn.invars):
                found.setdefault(var, []).append(eqn)
        return found

    def dependent(self, name: str) -> set[core.Var]:
        """All variables that depend on an argument."""
        return jaxprs.depends_on(self.eqns, self.inputs[name].values())

    def origin(self, atom: Any, through: Collection[str] = SHAPES) -> core.JaxprEqn | None:
        """The equation that made a value, looking through equations that leave it as it is; None for an input."""
        while isinstance(atom, core.Var) and (eqn := self.makers.get(atom)) is not None:
            if eqn.primitive.name not in through:
                return eqn
            atom = eqn.invars[0]
        return None

    def source(self, atom: Any, through: Collection[str] = SHAPES) -> Any:
        """The variable that a value is a copy of."""
        while isinstance(atom, core.Var) and (eqn := self.makers.get(atom)) is not None:
            if eqn.primitive.name not in through:
                return atom
            atom = eqn.invars[0]
        return atom

    def ancestors(self, atom: Any, through: Collection[str], depth: int = 12) -> Iterator[core.JaxprEqn]:
        """The equations behind a value: each that made it, and what is behind those that are in `through`."""
        if depth and isinstance(atom, core.Var) and (eqn := self.makers.get(atom)) is not None:
            yield eqn
            if eqn.primitive.name in through:
                for each in eqn.invars:
                    yield from self.ancestors(each, through, depth - 1)

    def evaluator(self, atoms: Sequence[Any], replaced: Sequence[core.Var] = ()) -> Callable[..., list[Any]]:
        """A compiled function of all arguments, and of values in the place of the variables `replaced`, that returns
        the values of `atoms`."""
        jaxpr, consts = self.closed.jaxpr, self.closed.consts
        wanted = jaxprs.part(jaxpr, jaxpr.eqns, [*jaxpr.constvars, *jaxpr.invars], list(atoms))

        def run(leaves: list[Any], others: list[Any]) -> list[Any]:
            given = dict(zip(replaced, others, strict=True))

            def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
                # Equations of one output; the inputs of the program are replaced below.
                return [given[eqn.outvars[0]]] if among(eqn.outvars[0], given) else None

            own = [given.get(var, leaf) for var, leaf in zip(jaxpr.invars, leaves, strict=True)]
            return jaxprs.interpret(wanted, [*consts, *own], rule)

        jitted = jax.jit(run)

        def call(*trees: Any, others: Sequence[Any] = ()) -> list[Any]:
            leaves = [leaf for tree in trees for leaf in partition(tree, is_array).leaves]
            return jitted(leaves, list(others))

        return call

    def values(self, atoms: Sequence[Any], *trees: Any) -> list[Any]:
        """The values of variables for these arguments, which are like those that were traced; one small compilation."""
        return self.evaluator(atoms)(*trees)


def is_call(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive.name in CALLS


def read(
    function: Callable[..., Any], *, opens: Callable[[core.JaxprEqn], bool] = is_call, **trees: Any
) -> Program:
    """The program of `function(*trees)`, with what depends on which of the named arguments. Arrays or their shapes.
    `opens`: whether to open a call.

    >>> import jax.numpy as jnp
    >>> program = read(lambda p, b: jnp.sum(p["w"] * b), params={"w": jnp.ones(2)}, batch=jnp.ones(2))
    >>> [eqn.primitive.name for eqn in program.eqns], list(program.inputs["params"])
    (['mul', 'reduce_sum'], ["params['w']"])
    """
    check_function(function)
    keep = lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
    given = {name: partition(tree, keep, name) for name, tree in trees.items()}

    def on_leaves(*leaves: Any) -> Any:
        parts = zip(given.values(), leaves, strict=True)
        return arrays_in(function(*(part.combine(own) for part, own in parts)))

    closed = opened(jaxprs.readable(on_leaves)(*(list(part.leaves) for part in given.values())), opens)
    waiting = iter(closed.jaxpr.invars)
    return Program(
        closed, {name: {path: next(waiting) for path in part.paths} for name, part in given.items()}
    )


def opened(closed: core.ClosedJaxpr, opens: Callable[[core.JaxprEqn], bool] = is_call) -> core.ClosedJaxpr:
    """The same program with the calls in it replaced by what they call."""
    avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]  # pyright: ignore

    def called(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
        if not opens(eqn):
            return None
        inner: Any = eqn.params.get("call_jaxpr", eqn.params.get("jaxpr"))
        return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, ())

    rule = jaxprs.open_calls(called=called)
    return jax.make_jaxpr(lambda *values: jaxprs.interpret(closed.jaxpr, [*closed.consts, *values], rule))(
        *avals
    )


def among(atom: Any, variables: Collection[core.Var]) -> bool:
    """Whether it is one of the variables; a literal is none."""
    return isinstance(atom, core.Var) and atom in variables


@dataclass(frozen=True)
class Softmax:
    """exp(x − max x) along some axes: the heart of softmax, log_softmax and logsumexp."""

    x: core.Var
    axes: tuple[int, ...]
    exp: core.JaxprEqn
    total: core.JaxprEqn | None
    """The sum of the exponentials."""


_MAXIMUM = SHAPES | {"select_n", "max", "is_finite"}


def softmaxes(program: Program) -> list[Softmax]:
    """All softmaxes outside of loops."""
    found = []
    for eqn in program.eqns:
        if eqn.primitive.name != "exp":
            continue
        shifted = program.origin(eqn.invars[0])
        if shifted is None or shifted.primitive.name != "sub":
            continue
        x, shift = shifted.invars
        maxima = [e for e in program.ancestors(shift, _MAXIMUM) if e.primitive.name == "reduce_max"]
        if maxima and isinstance(x, core.Var):
            readers = program.readers.get(eqn.outvars[0], [])
            total = next((each for each in readers if each.primitive.name == "reduce_sum"), None)
            found.append(Softmax(x, tuple(maxima[0].params["axes"]), eqn, total))
    return found


def probabilities(program: Program) -> dict[core.Var, core.JaxprEqn]:
    """The values that are probabilities: outputs of a softmax or a sigmoid, with the equation that makes them."""
    exps = {each.exp.outvars[0] for each in softmaxes(program)}
    found = {}
    for eqn in program.eqns:
        if eqn.primitive.name == "div" and among(program.source(eqn.invars[0]), exps):
            below = program.origin(eqn.invars[1])
            if (
                below is not None
                and below.primitive.name == "reduce_sum"
                and among(program.source(below.invars[0]), exps)
            ):
                found[eqn.outvars[0]] = eqn
        if eqn.primitive.name == "logistic":
            found[eqn.outvars[0]] = eqn
    return found
