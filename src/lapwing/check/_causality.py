"""Outputs that depend on later inputs, and targets that leak into their own prediction."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ._budget import Budget, Tell, seconds_of
from ._influence import along, axes_of, changes, common_size, compiled, is_drawable, redrawn
from ._report import CheckInputError, Report, fail


def causality(
    model: Callable[..., Any],
    *inputs: PyTree,
    time_axis: PyTree[int] = 1,
    out_axis: PyTree[int] | None = None,
    lag: int = 0,
    targets: PyTree | None = None,
    cuts: int = 4,
    budget_s: float = 20.0,
    seed: int = 0,
    tell: Tell | None = None,
) -> Report:
    """The output of `model(*inputs)` at time t must not depend on inputs after t − lag.

    Inputs may have one step more than the outputs, as the tokens of a model that predicts `batch[:, 1:]` from
    `batch[:, :-1]`. Which of the two ends is left out is not known, so an output may then depend on one input more.

    **Arguments**

    - `time_axis`, `out_axis`: the time axis of the inputs, and of the outputs if it is another one.
    - `lag`: 1 for a model that predicts an input from those before it.
    - `targets`: the model is called as `model(*inputs, targets)`, and its outputs must not depend on the targets.
    - `cuts`: the number of times from which on the inputs are replaced.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 6)).astype("float32")
    >>> print(causality(lambda x: x.cumsum(1), x))
    causality: no output depends on a later input (4 of 5 times tried)
    >>> causality(lambda x: x[:, ::-1].cumsum(1)[:, ::-1], x)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the output at time 0 changes with the inputs from time 1 on (axis 1). Look at ...
    """
    random = np.random.default_rng(seed)
    if targets is not None:
        _check_targets(model, inputs, targets)
        model = _with_targets(model, targets)
    budget, call = Budget(budget_s), compiled(model, *inputs)
    in_axes = axes_of(time_axis, inputs, "time_axis")
    length = common_size(inputs, in_axes, "time_axis")
    before = call(*inputs)
    out_axes = axes_of(time_axis if out_axis is None else out_axis, before, "out_axis")
    out_length = common_size(before, out_axes, "out_axis")
    more = length - out_length
    if more not in (0, 1) or out_length < 2:
        raise CheckInputError(
            f"expected outputs for each of two or more time steps, found {length} steps in the inputs and "
            f"{out_length} in the outputs; name the axis with time_axis, and out_axis if the outputs have another"
        )
    fit = budget.plan("causality", min(cuts, out_length - 1), seconds_of(call, *inputs), tell)
    # The first cut leaves most outputs to compare.
    first = 1 + more
    tried = sorted([first, *(first + 1 + random.permutation(length - first - 1)[: fit - 1]).tolist()])
    for cut in tried:
        after = call(*redrawn(inputs, in_axes, slice(cut, None), random))
        for flags, axis in zip(changes(before, after), out_axes, strict=True):
            before_cut = slice(max(cut + lag - more, 0))
            early = np.flatnonzero(along(flags, axis)[before_cut]) if axis is not None else np.array([])
            if early.size:
                _fail_ahead(int(early[0]), cut, axis, lag - more)
    return Report(
        "causality",
        f"no output depends on a later input ({len(tried)} of {out_length - 1} times tried)"
        + ("; swapped targets change nothing" if targets is not None else ""),
        {"times": out_length, "tried": len(tried)},
    )


def _fail_ahead(time: int, cut: int, axis: Any, lag: int) -> None:
    allowed = f"t {'−' if lag > 0 else '+'} {abs(lag)}"
    shift = f", though it may depend on inputs up to time {allowed} only" if lag else ""
    fail(
        "causality",
        f"the output at time {time} changes with the inputs from time {cut} on (axis {axis}){shift}",
        "the causal mask (its direction, and whether it is used at all), a norm or a mean over the time axis, and "
        "whether inputs and targets are shifted by one",
        [f"time {time}"],
    )


def _with_targets(model: Callable[..., Any], targets: Any) -> Callable[..., Any]:
    return lambda *inputs: model(*inputs, targets)


def _check_targets(model: Callable[..., Any], inputs: Any, targets: Any) -> None:
    call = compiled(model, *inputs, targets)
    swapped = jax.tree.map(
        lambda leaf: np.roll(np.asarray(leaf), 1, 0) if is_drawable(leaf) else leaf, targets
    )
    if all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (targets, swapped)), strict=True)):
        raise CheckInputError("the targets of all examples are the same; give some that differ")
    for flags in changes(call(*inputs, targets), call(*inputs, swapped)):
        if flags.any():
            index = [int(i) for i in np.argwhere(flags)[0]]
            fail(
                "causality",
                f"the outputs change when the targets of the examples are swapped, first at {index} "
                f"({flags.mean():.0%} of them): a target leaks into its own prediction",
                "the inputs of the model: targets that are not shifted, features made from labels, teacher forcing",
                [str(index)],
            )
