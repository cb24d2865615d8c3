"""A loss as a function of one flat vector of all its parameters, in float64 where the code allows it.

Finite differences in float32 lose half their digits twice. Most code runs in float64 when its parameters and batch are
float64 and `jax.enable_x64` is set; where it does not (a carry created in float32), it keeps its own precision.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Bool, Float

from lapwing.jaxprs import equations, readable

from ._held import Held
from ._partition import (
    Partition,
    is_array,
    is_float,
    parameters_in,
    partition,
    scalar_of,
    trained_entries,
)

# Mixed: float64 with something narrower in between.
Precision = Literal["float64", "mixed precision", "their own precision"]
_NARROW = ("float32", "float16", "bfloat16")

Vector = Float[np.ndarray, " entries"]


@dataclass(frozen=True)
class FlatLoss:
    """A loss around a point. `value` and `gradient` take a float64 vector; `trained` marks the entries to move."""

    params: Partition
    point: Vector
    trained: Bool[np.ndarray, " entries"]
    precision: Precision
    program: ClosedJaxpr
    """The loss as it was traced, a function of the vector and of the arrays beside it."""
    value: Callable[[Vector], float]
    gradient: Callable[[Vector], Vector]
    run: Callable[[Callable[..., Any], Vector], Any]
    """Calls a compiled function of a vector and of the arrays beside it, in the precision of the loss."""

    def held(
        self, surrogates: Sequence[str] = (), into_custom: bool = True
    ) -> Callable[[Vector], float] | None:
        """The value with what is cut by stop_gradient held as it is at the point; None if nothing is cut."""
        held = Held(self.program, surrogates, into_custom)
        if not held.holds:
            return None
        records = self.run(jax.jit(lambda vector, arrays: held.record(vector, *arrays)), self.point)
        again = jax.jit(lambda vector, arrays: held.run(records, vector, *arrays)[0])
        return lambda vector: float(self.run(again, vector))

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """Each leaf's path, with its start and end in the vector."""
        ends = np.cumsum([np.size(leaf) for leaf in self.params.leaves]).tolist()
        return list(zip(self.params.paths, [0, *ends[:-1]], ends, strict=True))

    def path_of(self, index: int) -> str:
        """The path of an entry of the vector: its leaf and its index there."""
        for (path, start, end), leaf in zip(self.ranges, self.params.leaves, strict=True):
            if start <= index < end:
                where = np.unravel_index(index - start, np.shape(leaf))
                return path + (f"[{', '.join(str(int(i)) for i in where)}]" if where else "")
        raise IndexError(index)


def flatten(
    loss: Callable[..., Any],
    params: Any,
    args: tuple[Any, ...],
    trainable: Any = None,
    plain: Callable[..., Any] | None = None,
) -> FlatLoss:
    """The loss as a function of a vector: in float64, or in its own precision if that raises. `plain` is the same loss,
    of which the values are computed: one that shows the functions it is made of, where `loss` shows its gradient."""
    try:
        flat = _flatten(loss, plain or loss, params, args, trainable, precise=True)
        flat.gradient(flat.point)
    except Exception:
        # If precision was not the cause, the same error is raised below.
        flat = _flatten(loss, plain or loss, params, args, trainable, precise=False)
    return flat


def _flatten(
    loss: Callable[..., Any],
    plain: Callable[..., Any],
    params: Any,
    args: tuple[Any, ...],
    trainable: Any,
    precise: bool,
) -> FlatLoss:
    chosen, given = parameters_in(params), partition(args, is_array)
    context = float64 if precise else contextlib.nullcontext
    arrays = widened(list(given.leaves)) if precise else list(given.leaves)
    shapes = [np.shape(leaf) for leaf in chosen.leaves]
    dtypes = [np.dtype(np.float64) if precise else leaf.dtype for leaf in chosen.leaves]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1].tolist()
    point = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in chosen.leaves])

    def of_vector(function: Callable[..., Any], vector: jax.Array, arrays: list[Any]) -> jax.Array:
        pieces = jnp.split(vector, cuts)
        leaves = [
            piece.reshape(shape).astype(dtype)
            for piece, shape, dtype in zip(pieces, shapes, dtypes, strict=True)
        ]
        return scalar_of(function(chosen.combine(leaves), *given.combine(arrays)))

    def run(function: Callable[..., Any], vector: Vector) -> Any:
        with context():
            return function(jnp.asarray(vector), arrays)

    program = run(readable(functools.partial(of_vector, plain)), point)
    value = jax.jit(lambda vector, arrays: jaxpr_as_fun(program)(vector, *arrays)[0])
    gradient = jax.jit(jax.grad(functools.partial(of_vector, loss)))
    return FlatLoss(
        params=chosen,
        point=point,
        trained=np.concatenate([mask.ravel() for mask in trained_entries(chosen, params, trainable)]),
        precision=_precision(program) if precise else "their own precision",
        program=program,
        value=lambda vector: float(run(value, vector)),
        gradient=lambda vector: np.asarray(run(gradient, vector), np.float64),
        run=run,
    )


def _precision(program: ClosedJaxpr) -> Precision:
    dtypes = {str(getattr(var.aval, "dtype", "")) for eqn in equations(program.jaxpr) for var in eqn.outvars}
    return "mixed precision" if dtypes & set(_NARROW) else "float64"


def widened(tree: Any) -> Any:
    """The tree with its floating-point arrays in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if is_float(leaf) else leaf, tree)


@contextlib.contextmanager
def float64() -> Iterator[None]:
    with jax.enable_x64(True), warnings.catch_warnings():
        # jax warns about a float64 written into a float32 array; here that is intended.
        warnings.simplefilter("ignore")
        yield
