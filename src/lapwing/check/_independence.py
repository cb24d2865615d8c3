"""Examples of a batch that influence each other.

One example is replaced, and the outputs of all others must not change. Which ones do change shows what is wrong: all of
them, those after it, or those at the same position of every sequence.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np
from jaxtyping import PyTree

from ._budget import Budget, Tell, seconds_of
from ._influence import along, axes_of, changes, common_size, compiled, is_drawable, redrawn
from ._report import CheckInputError, Report, fail


def batch_independence(
    model: Callable[..., Any],
    *inputs: PyTree,
    batch_axis: PyTree[int] = 0,
    out_axis: PyTree[int] = 0,
    examples: int = 8,
    budget_s: float = 20.0,
    seed: int = 0,
    tell: Tell | None = None,
) -> Report:
    """The output of an example must not depend on the other examples of its batch.

    **Arguments**

    - `model(*inputs)` returns something for each example: predictions, losses, or the result of an attack.
    - `batch_axis`, `out_axis`: the batch axis of inputs and outputs: an int or a prefix tree of ints, as for
      `jax.vmap`, with None for what all examples share.
    - `examples`: the number of examples to replace, drawn at random.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    >>> print(batch_independence(lambda x: x**2, x))
    batch_independence: none of 4 examples depends on another (4 of them replaced)
    >>> batch_independence(lambda x: x - x.mean(0), x)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the outputs of examples 1, 2, 3 change with example 0 (axis 0): ...
    """
    budget, random = Budget(budget_s), np.random.default_rng(seed)
    call = compiled(model, *inputs)
    in_axes = axes_of(batch_axis, inputs, "batch_axis")
    count = common_size(inputs, in_axes, "batch_axis")
    if count < 2:
        raise CheckInputError(f"expected a batch of two examples or more along batch_axis, found {count}")
    before = call(*inputs)
    out_axes = axes_of(out_axis, before, "out_axis")
    if common_size(before, out_axes, "out_axis") != count:
        raise CheckInputError(
            f"expected outputs for {count} examples along out_axis={out_axis}, found shapes "
            f"{[np.shape(leaf) for leaf in jax.tree.leaves(before)]}; let the model return one output per example"
        )
    fit = budget.plan("batch_independence", min(examples, count), seconds_of(call, *inputs), tell)
    tried = sorted(random.permutation(count)[:fit].tolist())
    influence = np.zeros((fit, count), bool)
    for row, example in enumerate(tried):
        after = call(*redrawn(inputs, in_axes, example, random))
        for flags, axis in zip(changes(before, after), out_axes, strict=True):
            if axis is not None:
                influence[row] |= along(flags, axis)
    others = influence.copy()
    others[np.arange(fit), tried] = False
    if others.any():
        swapped = _looks_swapped(call, inputs, in_axes, before, out_axes, tried[0], random)
        _explain(model, tried, others, in_axes, swapped)
    return Report(
        "batch_independence",
        f"none of {count} examples depends on another ({fit} of them replaced)",
        {"examples": count, "replaced": fit},
    )


def _explain(
    model: Any,
    tried: list[int],
    others: np.ndarray,
    in_axes: list[int | None],
    swapped: tuple[int, int] | None,
) -> NoReturn:
    row = int(np.argmax(others.any(axis=1)))
    example, changing = tried[row], np.flatnonzero(others[row])
    axis = next(axis for axis in in_axes if axis is not None)
    shown = ", ".join(map(str, changing[:6])) + (" and more" if len(changing) > 6 else "")
    which = (
        f"the outputs of examples {shown} change"
        if len(changing) > 1
        else f"the output of example {shown} changes"
    )
    what = f"{which} with example {example} (axis {axis})"
    norm = _batch_norm_in(model)
    if norm is not None:
        what += f": the model has batch statistics at {norm}, which make every example depend on all"
        look = (
            "whether that is intended; with running statistics (inference mode) the examples are independent"
        )
    elif swapped is not None:
        batch, time = swapped
        what += ": an output depends on the same position of other examples and not on other positions of its own, so "
        what += f"axes {batch} and {time} seem to be swapped"
        look = f"the order of batch and sequence axes where the model mixes along axis {batch}"
        if _only_later(tried, others):
            what += ", or something is carried from one example to the next"
            look += ", or a best value that is initialized before the loop over examples and not inside it"
    elif _only_later(tried, others):
        what += ": it is always a later example that changes, so something is carried from one example to the next"
        look = "a best value or a state that is initialized before the loop over examples and not inside it"
    elif others.sum() >= 0.8 * (others.size - len(tried)):
        what += (
            ": every example changes with every other, as with batch statistics or attention over the batch"
        )
        look = f"reductions, norms and attention along axis {axis}"
    else:
        look = f"indices and reductions along axis {axis}: a maximum or a sort over the batch, an index off by one"
    fail("batch_independence", what, look, [f"example {i}" for i in changing])


def _only_later(tried: list[int], others: np.ndarray) -> bool:
    pairs = [(tried[row], int(i)) for row, i in zip(*np.nonzero(others), strict=True)]
    return len(pairs) > 1 and all(other > example for example, other in pairs)


def _looks_swapped(
    call: Callable[..., Any],
    inputs: Any,
    in_axes: list[int | None],
    before: Any,
    out_axes: list,
    example: int,
    random: Any,
) -> tuple[int, int] | None:
    """The batch and sequence axes if a change at one position changes only that position, in other examples."""
    leaves, structure = jax.tree.flatten(inputs)
    outputs = jax.tree.leaves(before)
    for place, (leaf, axis) in enumerate(zip(leaves, in_axes, strict=True)):
        if axis not in (0, 1) or not is_drawable(leaf) or np.ndim(leaf) < 2 or np.shape(leaf)[1 - axis] < 2:
            continue
        other = 1 - axis
        position = np.shape(leaf)[other] // 2
        new = np.asarray(leaf).copy()
        index: list[Any] = [slice(None)] * new.ndim
        index[axis], index[other] = example, position
        new[tuple(index)] = np.roll(new, 1, axis=axis)[tuple(index)]
        after = call(*jax.tree.unflatten(structure, [*leaves[:place], new, *leaves[place + 1 :]]))
        for flags, output, out in zip(changes(before, after), outputs, out_axes, strict=True):
            same = np.ndim(output) >= 2 and out == axis and np.shape(output)[other] == np.shape(leaf)[other]
            if same and flags.any():
                positions = along(flags, other)
                if along(flags, axis).sum() > 1 and positions[position] and positions.sum() == 1:
                    return axis, other
    return None


def _batch_norm_in(model: Any) -> str | None:
    """The path of the first layer with batch statistics."""

    def is_norm(node: Any) -> bool:
        return "BatchNorm" in type(node).__name__

    nodes = jax.tree_util.tree_flatten_with_path(model, is_leaf=is_norm)[0]
    return next((jax.tree_util.keystr(path) or "its top" for path, node in nodes if is_norm(node)), None)
