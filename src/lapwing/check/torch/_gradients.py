"""The gradient of autograd against finite differences, on a copy of the module in float64.

A direction through all parameters shows a gradient that is wrong anywhere that matters, a direction through each
parameter alone one that is wrong in a small one. A right derivative agrees with the differences of one step size at
least; at a kink any slope between those of the two sides is right.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lapwing.check._report import CheckInputError, Report, fail
from lapwing.core import format_list

from ._module import check_module, import_torch, in_float64, scalar, trained, untouched

_STEPS = (1e-4, 1e-3, 1e-5, 1e-6)
_RELATIVE = 1e-3
_ROUNDING = 64 * 2.0**-52


class _Slope(NamedTuple):
    automatic: float
    differences: float
    agrees: bool


def gradients(loss: Callable[..., Any], model: Any, *args: Any, directions: int = 3, seed: int = 0) -> Report:
    """The gradient that autograd gives `loss(model, *args)` must agree with finite differences, in float64.

    **Arguments**

    - `loss(model, *args)` returns a tensor of one number. It is called with a copy of the module and of the tensors
      in float64; dropout draws the same numbers in every call.
    - `directions`: the number of random directions through all parameters.

    **Raises** `CheckError` with the parameter, and both derivatives at one of its entries.
    """
    of = _Loss(loss, copy.deepcopy(check_module(model)).double(), in_float64(args), seed)
    _check_precision(of)
    slopes = _Slopes(of, np.random.default_rng(seed))
    whole = [slopes.along(0, of.size) for _ in range(directions)]
    wrong = {name: (start, end) for name, start, end in of.ranges if not slopes.along(start, end).agrees}
    if wrong or not all(slope.agrees for slope in whole):
        _fail_wrong(slopes, wrong, whole)
    return Report(
        "gradients",
        f"{directions} directions and {len(of.ranges)} of {len(of.ranges)} leaves agree with finite differences in "
        "float64",
        {
            "directions": directions,
            "leaves": len(of.ranges),
            "of_leaves": len(of.ranges),
            "precision": "float64",
        },
    )


def _check_precision(of: "_Loss") -> None:
    """The loss must be one that can be computed in float64."""
    try:
        of.value(of.point)
    except (RuntimeError, ValueError, TypeError) as error:
        if "dtype" not in str(error):
            raise
        text = str(error).partition("\n")[0]
        raise CheckInputError(
            f"the loss cannot be computed in float64, in which gradients are compared: {text}; cast inputs to the "
            "dtype of the parameters (x.to(next(model.parameters()).dtype)) and not to a fixed one, and register all "
            "layers"
        ) from error


class _Loss:
    """The loss and its gradient as functions of one vector of all trained parameters."""

    def __init__(self, loss: Callable[..., Any], model: Any, args: Any, seed: int):
        self._loss, self._model, self._args, self._seed = loss, model, args, seed
        self._parameters = trained(model)
        counts = [each.numel() for each in self._parameters.values()]
        ends = np.cumsum(counts)
        self.ranges = [
            (name, int(end) - n, int(end))
            for name, n, end in zip(self._parameters, counts, ends, strict=True)
        ]
        self.size = int(ends[-1])
        self.point = np.concatenate([each.detach().numpy().ravel() for each in self._parameters.values()])

    def value(self, point: np.ndarray) -> float:
        torch = import_torch()
        self._set(point)
        # Not under no_grad: a loss may take a gradient itself.
        with untouched(self._model, self._seed), torch.enable_grad():
            return float(scalar(self._loss(self._model, *self._args)).detach())

    def gradient(self) -> np.ndarray:
        torch = import_torch()
        self._set(self.point)
        parameters = list(self._parameters.values())
        with untouched(self._model, self._seed), torch.enable_grad():
            value = scalar(self._loss(self._model, *self._args))
            if not value.requires_grad:
                return np.zeros(self.size)
            found = torch.autograd.grad(value, parameters, allow_unused=True)
        zeros = [
            torch.zeros_like(each) if grad is None else grad
            for each, grad in zip(parameters, found, strict=True)
        ]
        return np.concatenate([each.detach().numpy().ravel() for each in zeros])

    def _set(self, point: np.ndarray) -> None:
        torch = import_torch()
        with torch.no_grad():
            for (_, start, end), each in zip(self.ranges, self._parameters.values(), strict=True):
                each.copy_(torch.as_tensor(point[start:end]).reshape(each.shape))

    def index(self, at: int) -> str:
        name, start, _ = next(each for each in self.ranges if each[1] <= at < each[2])
        place = np.unravel_index(at - start, tuple(self._parameters[name].shape))
        return name + (f"[{', '.join(map(str, place))}]" if place else "")


class _Slopes:
    def __init__(self, of: _Loss, random: np.random.Generator):
        self.of, self.random = of, random
        self.value, self.gradient = of.value(of.point), of.gradient()
        if not np.isfinite(self.value):
            raise CheckInputError(
                f"the loss is {self.value} at these parameters; give some where it is finite"
            )
        if (bad := np.flatnonzero(~np.isfinite(self.gradient))).size:
            fail(
                "gradients",
                f"the gradient is {self.gradient[bad[0]]} at {of.index(int(bad[0]))}",
                "a square root, a norm or a logarithm at 0, and a where whose other branch is not finite",
            )
        self._scale = np.ones(of.size)
        for _, start, end in of.ranges:
            size = float(np.sqrt(np.mean(of.point[start:end] ** 2)))
            self._scale[start:end] = size or 1.0

    def along(self, start: int, end: int) -> _Slope:
        """In a random direction through the entries from `start` to `end`."""
        direction = np.zeros(self.of.size)
        weights = self.random.normal(size=end - start) if end - start > 1 else np.ones(1)
        direction[start:end] = weights * self._scale[start:end]
        automatic, measured = float(self.gradient @ direction), []
        up = down = 0.0
        step, slack = 1.0, 0.0
        for step in _STEPS:
            up, down = (self.of.value(self.of.point + sign * step * direction) for sign in (1, -1))
            measured.append((up - down) / (2 * step))
            slack = (
                _RELATIVE * max(abs(automatic), abs(measured[-1]))
                + _ROUNDING * (abs(self.value) + 1e-300) / step
            )
            if abs(automatic - measured[-1]) <= slack:
                return _Slope(automatic, measured[-1], True)
        low, high = sorted([(up - self.value) / step, (self.value - down) / step])
        is_kink = high - low > 0.1 * max(abs(low), abs(high)) and low - slack <= automatic <= high + slack
        return _Slope(automatic, measured[0], is_kink)

    def derivative(self, at: int) -> _Slope:
        slope, size = self.along(at, at + 1), self._scale[at]
        return _Slope(slope.automatic / size, slope.differences / size, slope.agrees)

    def wrong_entry(self, start: int, end: int) -> int | None:
        """An entry whose derivative is wrong, by halving; None if each alone agrees."""
        while end - start > 1:
            middle = (start + end) // 2
            halves = [half for half in ((start, middle), (middle, end)) if not self.along(*half).agrees]
            if not halves:
                return None
            start, end = halves[0]
        return None if self.derivative(start).agrees else start


def _fail_wrong(slopes: _Slopes, wrong: dict[str, tuple[int, int]], whole: list[_Slope]) -> None:
    look = (
        "the backward of a torch.autograd.Function, .detach(), .data, torch.no_grad() and .item() on the way, an "
        "operation in place, and a loss that depends on its own gradient"
    )
    if not wrong:
        slope = next(slope for slope in whole if not slope.agrees)
        found = f"autograd gives {slope.automatic:.6g} and finite differences {slope.differences:.6g}"
        fail("gradients", f"the gradient is wrong: along a random direction {found}", look)
    cut = [name for name, (start, end) in wrong.items() if not slopes.gradient[start:end].any()]
    name = cut[0] if cut else next(iter(wrong))
    at = slopes.wrong_entry(*wrong[name])
    where = f"the gradient of {format_list(list(wrong))} is {'cut' if cut else 'wrong'}"
    if at is not None:
        slope = slopes.derivative(at)
        where += (
            f": at {slopes.of.index(at)} the automatic derivative is {slope.automatic:.6g} and finite differences give "
            f"{slope.differences:.6g}"
        )
    fail("gradients", where, look, list(wrong))
