"""A loss as a function of one long vector of all its parameters, in float64 where the code allows it.

Finite differences in float32 lose half their digits twice over. Most code becomes float64 by itself when its parameters
and its batch are float64 and jax is told so; where it does not (a carry that is made in float32), the precision stays.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.jaxprs import equations

from ._parts import Parts, is_array, is_float, needs_parameters, parts, scalar_of

# Mixed: float64, with something narrower on the way.
Precision = Literal["float64", "mixed precision", "their own precision"]
_NARROW = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Line:
    """The loss around a point. `value` and `gradient` take a float64 vector; `trained` marks what may be moved."""

    params: Parts
    point: np.ndarray
    trained: np.ndarray
    precision: Precision
    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """Each leaf's path, with where it begins and ends in the vector."""
        ends = np.cumsum([np.size(leaf) for leaf in self.params.leaves]).tolist()
        return list(zip(self.params.paths, [0, *ends[:-1]], ends, strict=True))

    def place(self, index: int) -> str:
        """Where an entry of the vector is: the path of its leaf and its index there."""
        for (path, start, end), leaf in zip(self.ranges, self.params.leaves, strict=True):
            if start <= index < end:
                where = np.unravel_index(index - start, np.shape(leaf))
                return path + (f"[{', '.join(str(int(i)) for i in where)}]" if where else "")
        raise IndexError(index)


def line(loss: Callable[..., Any], params: Any, args: tuple[Any, ...], trainable: Any = None) -> Line:
    """The loss as a function of a vector: in float64, or as it is if that raises."""
    try:
        made = _line(loss, params, args, trainable, precise=True)
        made.value(made.point)
        made.gradient(made.point)
    except Exception:
        # Whatever it was: if it is not the precision that was at fault, it is raised again below.
        made = _line(loss, params, args, trainable, precise=False)
    return made


def trained_entries(chosen: Parts, params: Any, trainable: Any) -> np.ndarray:
    """Which entries of all leaves, one after the other, are trained."""
    if trainable is None:
        return np.ones(sum(np.size(leaf) for leaf in chosen.leaves), bool)
    numbered = jax.tree.map(lambda leaf, mask: np.broadcast_to(mask, np.shape(leaf)), params, trainable)
    masks = dict(jax.tree_util.tree_flatten_with_path(numbered)[0])
    by_path = {jax.tree_util.keystr(path): mask for path, mask in masks.items()}
    return np.concatenate([np.ravel(by_path[path.removeprefix("params")]) for path in chosen.paths])


def _line(
    loss: Callable[..., Any], params: Any, args: tuple[Any, ...], trainable: Any, precise: bool
) -> Line:
    chosen = parts(params, is_float, "params")
    needs_parameters(chosen)
    given = parts(args, is_array)
    context = float64 if precise else contextlib.nullcontext
    arrays = widened(list(given.leaves)) if precise else list(given.leaves)
    shapes = [np.shape(leaf) for leaf in chosen.leaves]
    dtypes = [np.dtype(np.float64) if precise else leaf.dtype for leaf in chosen.leaves]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1].tolist()

    point = np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in chosen.leaves])

    def of_vector(vector: jax.Array, arrays: list[Any]) -> jax.Array:
        pieces = jnp.split(vector, cuts)
        leaves = [
            piece.reshape(shape).astype(dtype)
            for piece, shape, dtype in zip(pieces, shapes, dtypes, strict=True)
        ]
        return scalar_of(loss(chosen.join(leaves), *given.join(arrays)))

    value, gradient = jax.jit(of_vector), jax.jit(jax.grad(of_vector))

    def value_at(vector: np.ndarray) -> float:
        with context():
            return float(value(jnp.asarray(vector), arrays))

    def gradient_at(vector: np.ndarray) -> np.ndarray:
        with context():
            return np.asarray(gradient(jnp.asarray(vector), arrays), np.float64)

    return Line(
        params=chosen,
        point=point,
        trained=trained_entries(chosen, params, trainable),
        precision=_precision(of_vector, point, arrays) if precise else "their own precision",
        value=value_at,
        gradient=gradient_at,
    )


def _precision(of_vector: Callable[..., Any], point: np.ndarray, arrays: list[Any]) -> Precision:
    with float64():
        program = jax.make_jaxpr(of_vector)(point, arrays)
    dtypes = {str(getattr(var.aval, "dtype", "")) for eqn in equations(program.jaxpr) for var in eqn.outvars}
    return "mixed precision" if dtypes & set(_NARROW) else "float64"


def widened(tree: Any) -> Any:
    """The tree with all its floating-point arrays in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if is_float(leaf) else leaf, tree)


@contextlib.contextmanager
def float64() -> Iterator[None]:
    with jax.enable_x64(True), warnings.catch_warnings():
        # Code that writes a float64 into an array of its own in float32 is warned about; here it is meant.
        warnings.simplefilter("ignore")
        yield
