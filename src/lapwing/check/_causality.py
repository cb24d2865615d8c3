"""Outputs that see what comes later, and targets that leak into their own prediction."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ._budget import Budget, Tell
from ._influence import along, axes_of, changed, compiled, is_drawable, moved, one_size
from ._report import CheckInputError, Report, found
from ._timed import seconds_of


def causality(
    model: Callable[..., Any],
    *inputs: Any,
    time_axis: Any = 1,
    out_axis: Any = None,
    lag: int = 0,
    targets: Any = None,
    cuts: int = 4,
    budget_s: float = 20.0,
    seed: int = 0,
    tell: Tell | None = None,
) -> Report:
    """The output at time t must not depend on inputs after t − lag.

    `lag=1` is for a model that predicts an input from those before it. With `targets`, the model is called as
    `model(*inputs, targets)`, and its outputs must not move when the targets of all examples are swapped. `out_axis`
    is the time axis of the outputs, if it is another one.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 6)).astype("float32")
    >>> print(causality(lambda x: x.cumsum(1), x))
    causality: no output sees an input after its own time (4 of 5 moments tried)
    >>> causality(lambda x: x[:, ::-1].cumsum(1)[:, ::-1], x)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the output at time 0 moves when inputs from time 1 on are changed (axis 1). Look
    at ...
    """
    random = np.random.default_rng(seed)
    if targets is not None:
        _targets_do_not_leak(model, inputs, targets)
        model = _with_targets(model, targets)
    budget, call = Budget(budget_s), compiled(model, *inputs)
    in_axes = axes_of(time_axis, inputs, "time_axis")
    length = one_size(inputs, in_axes, "time_axis")
    before = call(*inputs)
    out_axes = axes_of(time_axis if out_axis is None else out_axis, before, "out_axis")
    out_length = one_size(before, out_axes, "out_axis")
    if out_length != length or length < 2:
        raise CheckInputError(
            f"expected outputs for each of two or more moments, found {length} moments in the inputs and {out_length} "
            "in the outputs; name the axis of time with time_axis, and out_axis if the outputs have another"
        )
    fit = budget.plan("causality", min(cuts, length - 1), seconds_of(call, *inputs), tell)
    # The first cut leaves most to be seen.
    tried = sorted([1, *(2 + random.permutation(length - 2)[: fit - 1]).tolist()])
    for cut in tried:
        after = call(*changed(inputs, in_axes, slice(cut, None), random))
        for flags, axis in zip(moved(before, after), out_axes, strict=True):
            early = np.flatnonzero(along(flags, axis)[: cut + lag]) if axis is not None else np.array([])
            if early.size:
                _seen_ahead(int(early[0]), cut, axis, lag)
    return Report(
        "causality",
        f"no output sees an input after its own time ({len(tried)} of {length - 1} moments tried)"
        + ("; swapped targets change nothing" if targets is not None else ""),
        {"moments": length, "tried": len(tried)},
    )


def _seen_ahead(moment: int, cut: int, axis: Any, lag: int) -> None:
    shift = f", though it may see inputs up to time t − {lag} only" if lag else ""
    found(
        "causality",
        f"the output at time {moment} moves when inputs from time {cut} on are changed (axis {axis}){shift}",
        "the causal mask (its direction, and whether it is used at all), a norm or a mean over the time axis, and "
        "whether inputs and targets are shifted by one",
        [f"time {moment}"],
    )


def _with_targets(model: Callable[..., Any], targets: Any) -> Callable[..., Any]:
    return lambda *inputs: model(*inputs, targets)


def _targets_do_not_leak(model: Callable[..., Any], inputs: Any, targets: Any) -> None:
    call = compiled(model, *inputs, targets)
    swapped = jax.tree.map(
        lambda leaf: np.roll(np.asarray(leaf), 1, 0) if is_drawable(leaf) else leaf, targets
    )
    if all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (targets, swapped)), strict=True)):
        raise CheckInputError("the targets of all examples are the same; give some that differ")
    for flags in moved(call(*inputs, targets), call(*inputs, swapped)):
        if flags.any():
            place = tuple(int(i) for i in np.argwhere(flags)[0])
            found(
                "causality",
                f"the outputs move when the targets of the examples are swapped, first at {list(place)} "
                f"({flags.mean():.0%} of them): a target leaks into its own prediction",
                "what the model is given: targets not shifted, features made from the labels, teacher forcing",
                [str(list(place))],
            )
