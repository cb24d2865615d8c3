"""Attention: what a mask lets through, and how heads are split, read from the softmaxes of a program.

A mask is what is chosen between scores and a very negative number, or adds one. It is computed for the batch, and
compared with the padding that the batch shows: runs of one value at the end (or the beginning) of rows. Heads are split
by a reshape of the features; one that moves the axis of time to another place in memory mixes times and features.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Bool, PyTree

from lapwing import jaxprs

from ._attention_axis import check_axis
from ._jaxprs import place
from ._partition import by_path, is_array
from ._program import SHAPES, Program, Softmax, among, is_call, opened, read, softmaxes
from ._report import CheckInputError, Report, fail

_NEVER = -1e4  # A score of this size leaves no weight.
_SCORES = SHAPES | {"mul", "div", "add", "sub", "select_n", "max", "min", "tanh"}
_PARTS = SHAPES | {
    "mul",
    "div",
    "add",
    "sub",
    "neg",
    "slice",
    "dynamic_slice",
    "split",
    "concatenate",
    "gather",
}
_WEIGHTS = SHAPES | {"div", "mul", "select_n"}
_LEAST = 2


class Mask(NamedTuple):
    """Where a mask is, what it is made of, and what turns the value of that into what is allowed."""

    eqn: core.JaxprEqn
    source: Any
    allows: Callable[[np.ndarray], np.ndarray]


def attention(model: Callable[..., Any], params: PyTree, batch: PyTree) -> Report:
    """The attention of `model(params, batch)` must look at what it may look at, and each head at all times.

    It finds a mask that is inverted (only padding, or only the future, is attended to), and heads that are split or
    merged by a reshape where a transpose is needed. The masks are computed, and nothing else.

    >>> import jax, jax.numpy as jnp
    >>> def model(w, x):
    ...     scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), -1e9, (x @ w) @ x.mT)
    ...     return jax.nn.softmax(scores) @ x
    >>> attention(model, jnp.eye(3), jnp.ones((2, 6, 3)))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the mask of the attention at ... lets through the future and nothing else: ...
    """
    program = read(model, params=params, batch=batch)
    found = softmaxes(program)
    for softmax in found:
        check_axis(program, softmax)
    heads = _check_heads(program)
    masks = _check_masks(program, found, params, batch)
    if not heads and not masks:
        raise CheckInputError("no softmax of products with a mask or with heads was found")
    return Report(
        "attention", f"{masks} masks let the right places through; {heads} products of queries and keys"
    )


def _check_masks(program: Program, found: list[Softmax], params: PyTree, batch: PyTree) -> int:
    masks = [
        (softmax, mask)
        for softmax in found
        for mask in _masks(program, softmax.x, program.dependent("params"))
    ]
    if not masks:
        return 0
    values = iter(program.values([mask.source for _, mask in masks], params, batch))
    paddings = [
        (path, padding) for path, leaf in by_path(batch, "batch").items() for padding in _paddings(leaf)
    ]
    for (softmax, mask), value in zip(masks, values, strict=True):
        shape, axis = jaxprs.shape(softmax.x), softmax.axes[-1]
        allowed = mask.allows(np.asarray(value))
        if len(softmax.axes) > 1 or len(shape) < _LEAST or not _fits(allowed.shape, shape):
            continue
        allowed = np.moveaxis(np.broadcast_to(allowed, shape), axis, -1)
        _check_future(mask, allowed)
        for path, padding in paddings:
            if padding.shape == (shape[0], shape[axis]):
                _check_padding(mask, allowed, path, padding)
    return len(masks)


def _fits(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False


def _check_future(mask: Mask, allowed: Bool[np.ndarray, "..."]) -> None:
    last, size = allowed.reshape(-1, *allowed.shape[-2:]), allowed.shape[-1]
    if size > _LEAST and last.shape[-2] == size and (last == np.triu(np.ones((size, size), bool), 1)).all():
        fail(
            "attention",
            f"the mask of the attention at {place(mask.eqn)} lets through the future and nothing else: it is inverted",
            "the mask: what is True where one may look in one library is True where one may not in another",
            [place(mask.eqn)],
        )


def _check_padding(mask: Mask, allowed: Any, path: str, padding: Bool[np.ndarray, "batch time"]) -> None:
    mixed = padding.any(1) & ~padding.all(1)
    seen = allowed.reshape(len(padding), -1, padding.shape[1]).any(1)
    if mixed.sum() >= _LEAST and (seen[mixed] == padding[mixed]).all():
        fail(
            "attention",
            f"the mask of the attention at {place(mask.eqn)} lets through the padding of {path} and nothing else: it "
            "is inverted",
            "the mask: what is True where one may look in one library (Flax) is True where one may not in another "
            "(key_padding_mask of PyTorch)",
            [place(mask.eqn)],
        )


def _masks(program: Program, atom: Any, of_params: Collection[core.Var], depth: int = 12) -> Iterator[Mask]:
    """The masks on the way to a score."""
    eqn = program.makers.get(atom) if isinstance(atom, core.Var) else None
    if eqn is None or not depth:
        return
    name, inputs = eqn.primitive.name, eqn.invars
    if name == "select_n" and len(inputs) == 3:
        for branch, other, chosen in ((1, inputs[2], True), (2, inputs[1], False)):
            if _is_never(program, inputs[branch]):
                if not among(inputs[0], of_params):
                    yield Mask(eqn, inputs[0], lambda value, chosen=chosen: value.astype(bool) == chosen)
                yield from _masks(program, other, of_params, depth - 1)
    elif name == "add":
        for mine, other in (inputs, inputs[::-1]):
            if not among(other, of_params) and isinstance(other, core.Var):
                yield Mask(eqn, other, _is_open)
                yield from _masks(program, mine, of_params, depth - 1)
    elif name in SHAPES or name in ("mul", "div", "sub"):
        yield from _masks(program, inputs[0], of_params, depth - 1)


def _is_open(value: np.ndarray) -> np.ndarray:
    return np.asarray(value, np.float32) > _NEVER


def _is_never(program: Program, atom: Any) -> bool:
    """Whether a value is one very negative number."""
    source = program.source(atom)
    if isinstance(source, core.Literal):
        return bool(np.max(np.asarray(source.val, np.float32)) <= _NEVER)
    constants = dict(zip(program.closed.jaxpr.constvars, program.closed.consts, strict=True))
    return source in constants and bool(np.max(np.asarray(constants[source], np.float32)) <= _NEVER)


def _paddings(leaf: Any) -> Iterator[Bool[np.ndarray, "batch time"]]:
    """Where rows end, or begin, with runs of one value that is nowhere else, of different lengths."""
    if not is_array(leaf) or (
        isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    ):
        return
    values = np.asarray(leaf)
    if values.ndim == 3 and np.issubdtype(values.dtype, np.floating):
        kinds = [(values == 0).all(-1)]
    elif values.ndim == 2 and np.issubdtype(values.dtype, np.integer) and len(np.unique(values)) > 3:
        kinds = [values == kind for kind in {_most(values[:, -1]), _most(values[:, 0])}]
    else:
        return
    for padding in kinds:
        steps = np.diff(padding.astype(int), axis=1)
        if len(np.unique(padding.sum(1))) > _LEAST and ((steps >= 0).all() or (steps <= 0).all()):
            yield padding


def _most(values: np.ndarray) -> Any:
    kinds, counts = np.unique(values, return_counts=True)
    return kinds[np.argmax(counts)]


def _check_heads(program: Program) -> int:
    """The reshapes on the way to products of queries and keys, and behind those of weights and values. Returns the
    number of these products, also of those in loops."""
    products = 0
    for softmax in softmaxes(program):
        shape = jaxprs.shape(softmax.x)
        times = set(shape[-2:]) | {shape[axis] for axis in softmax.axes}
        for product in _products_behind(program, softmax.x):
            products += 1
            parts = [eqn for atom in product.invars for eqn in program.ancestors(atom, _PARTS, 16)]
            _check_reshapes(parts, times, "splits")
        for product in _products_after(program, softmax.exp.outvars[0], _WEIGHTS):
            _check_reshapes(_after(program, product.outvars[0], SHAPES | {"div"}), times, "merges")
    for eqn in program.eqns:
        if not is_call(eqn):
            for inner in jaxprs.inner_jaxprs(eqn):
                body = opened(core.ClosedJaxpr(jaxprs.without_constvars(inner), ()))
                products += _check_heads(Program(body, {}))
    return products


def _products_behind(program: Program, atom: Any) -> list[core.JaxprEqn]:
    found = [eqn for eqn in program.ancestors(atom, _SCORES) if eqn.primitive.name == "dot_general"]
    return list({id(eqn): eqn for eqn in found}.values())


def _products_after(program: Program, var: core.Var, through: Collection[str]) -> list[core.JaxprEqn]:
    return [eqn for eqn in _after(program, var, through) if eqn.primitive.name == "dot_general"]


def _after(program: Program, var: core.Var, through: Collection[str]) -> list[core.JaxprEqn]:
    """The equations that read a value, and those that read what is made of it by equations in `through`."""
    found: dict[int, core.JaxprEqn] = {}
    waiting = [var]
    while waiting:
        for eqn in program.readers.get(waiting.pop(), []):
            if id(eqn) not in found:
                found[id(eqn)] = eqn
                waiting += eqn.outvars if eqn.primitive.name in through else []
    return list(found.values())


def _check_reshapes(eqns: list[core.JaxprEqn], times: set[int], what: str) -> None:
    for eqn in eqns:
        if eqn.primitive.name != "reshape":
            continue
        before, after = jaxprs.shape(eqn.invars[0]), jaxprs.shape(eqn.outvars[0])
        if any(mixes(before, after, time) for time in times):
            fail(
                "attention",
                f"the reshape at {place(eqn)} {what} the heads of an attention from {list(before)} to {list(after)}, "
                "and mixes times with features: a head sees a part of the times, and outputs land at other times",
                "the order of axes: x.reshape(batch, time, heads, width) and then swapaxes(1, 2); on the way back the "
                "transpose comes before the reshape",
                [place(eqn)],
            )


def mixes(before: tuple[int, ...], after: tuple[int, ...], time: int) -> bool:
    """Whether a reshape moves the axis of this size to another place in memory, out of the features or into them.

    >>> mixes((8, 12, 24), (8, 3, 12, 8), 12), mixes((8, 12, 24), (8, 12, 3, 8), 12)
    (True, False)
    """
    if before.count(time) != 1 or after.count(time) != 1 or time < _LEAST:
        return False
    inner, other = (math.prod(shape[shape.index(time) + 1 :]) for shape in (before, after))
    small, large = sorted((inner, other))
    return small != large and small > 0 and large % small == 0
