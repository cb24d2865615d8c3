"""The automatic gradient against finite differences.

A random direction through all parameters shows a gradient that is wrong anywhere that matters, a direction through each
leaf alone one that is wrong in a small leaf, and bisection of the leaf finds the entry. Differences are computed for
several step sizes; a right derivative agrees with one of them, a wrong one with none. At a kink (relu at 0, |w| at 0)
any slope between the two sides is right. What a stop_gradient cuts on purpose is held at its value (`_held.py`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._budget import Budget, Tell
from ._flat import FlatLoss, Vector, flatten
from ._jaxprs import custom_functions, places_of
from ._report import CheckInputError, Report, fail
from ._wrong_gradient import why_wrong

_FEW_ENTRIES = 64  # A leaf of as many may be tried entry by entry.
_STEPS = {
    "float64": (1e-4, 1e-3, 1e-2, 1e-5, 1e-6),
    "mixed precision": (1e-4, 1e-3, 1e-2, 1e-5),  # a smaller one may vanish in rounding
    "their own precision": (1e-2, 3e-2, 3e-3, 1e-3),
}
# The accumulated rounding of a long computation.
_ROUNDINGS = 64


@dataclass(frozen=True)
class _Slope:
    automatic: float
    differences: float
    agrees: bool


def gradients(
    loss: Callable[..., Any],
    params: PyTree,
    *args: Any,
    trainable: PyTree[bool] | None = None,
    stop_gradient: Literal["forbidden", "allowed"] = "forbidden",
    surrogates: Sequence[Callable[..., Any] | str] = (),
    directions: int = 3,
    budget_s: float = 30.0,
    seed: int = 0,
    tell: Tell | None = None,
) -> Report:
    """The automatic gradient of `loss(params, *args)` must agree with finite differences.

    **Arguments**

    - `trainable`: a tree like `params` of bools or boolean arrays; other entries are not perturbed.
    - `stop_gradient`: a `jax.lax.stop_gradient` that changes the gradient is a finding, and the message names its line.
      "allowed" says that it is intended: then what it stops is held at its value in the finite differences, and
      everything else is compared as before.
    - `surrogates`: functions with a `custom_vjp` or `custom_jvp`, or their names, whose derivative is not their own on
      purpose, such as a straight-through estimator; everything else is compared as before.
    - `directions`: the number of random directions through all parameters.
    - `budget_s`: the time for the differences; leaves that do not fit are sampled.

    >>> import jax, jax.numpy as jnp
    >>> params = {"w": jnp.ones(3), "memory": jnp.ones(3)}
    >>> print(gradients(lambda p: jnp.sum(p["w"] * p["memory"]), params))
    gradients: 3 directions and 2 of 2 leaves agree with finite differences in float64
    >>> gradients(lambda p: jnp.sum(p["w"] * jax.lax.stop_gradient(p["memory"])), params)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the gradient of params['memory'] is cut: at params['memory'][0] the automatic
    derivative is 0 and finite differences give 1. Look at stop_gradient at ...
    """
    flat = flatten(loss, params, args, trainable)
    return compare_gradients(flat, stop_gradient == "allowed", surrogates, directions, budget_s, seed, tell)


def compare_gradients(
    flat: FlatLoss,
    cut: bool = True,
    surrogates: Sequence[Callable[..., Any] | str] = (),
    directions: int = 3,
    budget_s: float = 30.0,
    seed: int = 0,
    tell: Tell | None = None,
) -> Report:
    """`gradients` of a flat loss. `cut`: what stop_gradient cuts is compared as cut."""
    budget = Budget(budget_s)
    declared = _declared(flat, surrogates)
    held = flat.held(declared) if cut or declared else None
    slopes = _Slopes(flat, held or flat.value, np.random.default_rng(seed))
    leaves = [(path, start, end) for path, start, end in flat.ranges if flat.trained[start:end].any()]
    fit = budget.plan("gradients", directions + len(leaves), slopes.seconds_per_slope(), tell) - directions
    whole = [slopes.along(0, len(flat.point)) for _ in range(directions)]
    wrong, tried = {}, 0
    for i in sorted(slopes.random.permutation(len(leaves))[: max(1, fit)]):
        path, start, end = leaves[i]
        slope = slopes.along(start, end)
        tried += 1
        if not slope.agrees and not _is_mixture(slopes, start, end):
            wrong[path] = (slope, start, end)
        if budget.left() == 0:
            break
    agree = all(slope.agrees for slope in whole)
    if wrong or not (agree or (tried == len(leaves) and _all_mixed(slopes, leaves, budget))):
        ranges = [(start, end) for _, start, end in wrong.values()] or [(0, len(flat.point))]
        cause = why_wrong(flat, lambda value: _explains(flat, value, ranges, seed), cut, declared)
        if not cause.excused:
            _fail_wrong(slopes, whole, wrong, cause.look, budget)
    cuts = places_of("stop_gradient", flat.program) if cut else []
    return Report(
        "gradients",
        f"{directions} directions and {tried} of {len(leaves)} leaves agree with finite differences in {flat.precision}"
        + (f"; what stop_gradient cuts at {format_list(cuts, 3)} is compared as cut" if cuts else ""),
        {
            "directions": directions,
            "leaves": tried,
            "of_leaves": len(leaves),
            "precision": flat.precision,
            **({"stop_gradient": cuts} if cuts else {}),
        },
    )


def _is_mixture(slopes: "_Slopes", start: int, end: int) -> bool:
    """Whether each entry agrees alone: at several kinks, such as relu units at 0, a direction that raises some and
    lowers others need not have a slope between its two sides."""
    few = 1 < end - start <= _FEW_ENTRIES
    return few and all(slopes.along(entry, entry + 1).agrees for entry in range(start, end))


def _all_mixed(slopes: "_Slopes", leaves: list[tuple[str, int, int]], budget: Budget) -> bool:
    """Whether directions through all leaves may cross several kinks: those of the small leaves, which agree entry by
    entry, as each leaf does alone."""
    small = [(start, end) for _, start, end in leaves if 1 < end - start <= _FEW_ENTRIES]
    return bool(small) and all(budget.left() > 0 and _is_mixture(slopes, *each) for each in small)


def _declared(flat: FlatLoss, surrogates: Sequence[Callable[..., Any] | str]) -> list[str]:
    """The functions of the program that are declared, as it names them."""
    wanted = [each if isinstance(each, str) else getattr(each, "__name__", str(each)) for each in surrogates]
    known = custom_functions(flat.program)
    unknown = [name for name in wanted if not any(each.startswith(f"{name} at") for each in known)]
    if unknown:
        there = format_list(list(known.values()), 5) if known else "none"
        raise CheckInputError(
            f"expected surrogates to be functions with a custom derivative that the loss calls, found {unknown[0]!r}; "
            f"it calls {there}"
        )
    return [each for each in known if any(each.startswith(f"{name} at") for name in wanted)]


def _explains(
    flat: FlatLoss, value: Callable[[Vector], float], ranges: list[tuple[int, int]], seed: int
) -> bool:
    """Whether the gradient is that of this value, in all ranges of entries."""
    slopes = _Slopes(flat, value, np.random.default_rng(seed))
    return all(slopes.along(start, end).agrees for start, end in ranges for _ in range(3))


class _Slopes:
    """Derivatives along directions, automatic and by finite differences."""

    def __init__(self, of: FlatLoss, value: Callable[[Vector], float], random: np.random.Generator) -> None:
        self.of, self.value_at = of, value
        self.random = random
        self.value = value(of.point)
        self.gradient = of.gradient(of.point)
        if not np.isfinite(self.value):
            raise CheckInputError(
                f"the loss is {self.value} at these parameters; give some where it is finite"
            )
        self._check_finite()
        self._scale = self._scales()
        self._noises: dict[float, float] = {}
        wide = of.precision != "their own precision"
        self._relative = 1e-3 if wide else 3e-2
        self._most_noise = 0.01 if of.precision == "float64" else 0.1
        self._rounding = _ROUNDINGS * 2.0 ** (-52 if wide else -23) * abs(self.value)
        started = time.perf_counter()
        value(of.point)
        self._seconds = time.perf_counter() - started

    def seconds_per_slope(self) -> float:
        return 2 * self._seconds

    def along(self, start: int, end: int) -> _Slope:
        """In a random direction through the entries from `start` to `end`."""
        weights = self.random.normal(size=end - start) if end - start > 1 else 1.0
        direction = np.zeros_like(self.of.point)
        direction[start:end] = weights * self._scale[start:end]
        automatic = float(self.gradient @ direction)
        measured, conclusive, up, down, step, slack = [], False, 0.0, 0.0, 1.0, 0.0
        for step in _STEPS[self.of.precision]:
            up, down = (self.value_at(self.of.point + sign * step * direction) for sign in (1, -1))
            measured.append((up - down) / (2 * step))
            size, noise = max(abs(automatic), abs(measured[-1])), self._noise(step) / step
            slack = self._relative * size + noise
            # Noise as large as the slope agrees with anything.
            is_clear = noise <= self._most_noise * size
            conclusive = conclusive or is_clear
            if is_clear and abs(automatic - measured[-1]) <= slack:
                return _Slope(automatic, measured[-1], True)
        # The last step is the smallest: if the slopes of both sides still differ, there is a kink.
        low, high = sorted([(up - self.value) / step, (self.value - down) / step])
        is_kink = high - low > 0.1 * max(abs(low), abs(high)) and low - slack <= automatic <= high + slack
        return _Slope(automatic, measured[1], is_kink or not conclusive)

    def derivative(self, index: int) -> _Slope:
        """At one entry, per unit of that entry."""
        slope, size = self.along(index, index + 1), self._scale[index]
        return _Slope(slope.automatic / size, slope.differences / size, slope.agrees)

    def _noise(self, step: float) -> float:
        """The rounding error of the loss at this step size; float64 may hide float32 inside.

        It is what remains in a third difference, which for a smooth function is of the order of the step's cube.
        """
        if step not in self._noises:
            thirds = []
            for _ in range(3):
                direction = self.random.normal(size=len(self.of.point)) * self._scale
                values = [self.value_at(self.of.point + times * step * direction) for times in (2, 1, -1, -2)]
                thirds.append(abs(values[0] - 2 * values[1] + 2 * values[2] - values[3]))
            self._noises[step] = max(self._rounding, 4 * float(np.median(thirds)))
        return self._noises[step]

    def _scales(self) -> np.ndarray:
        """The size of each leaf, by which a step of 1 changes it; 1 for a leaf of zeros. Entries that are not trained
        (they may even be infinite) have 0."""
        scale = np.empty_like(self.of.point)
        for _, start, end in self.of.ranges:
            size = float(np.sqrt(np.mean(self.of.point[start:end] ** 2))) if end > start else 0.0
            scale[start:end] = size or 1.0
        return np.where(self.of.trained, scale, 0.0)

    def _check_finite(self) -> None:
        bad = np.flatnonzero(~np.isfinite(self.gradient) & self.of.trained)
        if bad.size:
            path = self.of.path_of(int(bad[0]))
            fail(
                "gradients",
                f"the loss is {self.value:.6g}, but its gradient is {self.gradient[bad[0]]} at {path} "
                f"and at {bad.size - 1} more entries",
                "a square root, a norm, a logarithm or a division at 0 behind a jnp.where; guard its argument too",
                [self.of.path_of(int(i)) for i in bad[:100]],
            )


def _fail_wrong(slopes: _Slopes, whole: list[_Slope], wrong: dict, look: str, budget: Budget) -> None:
    if not wrong:
        worst = max(whole, key=lambda slope: abs(slope.automatic - slope.differences))
        path, at = _bisect(slopes, worst, 0, len(slopes.of.point), budget)
        fail(
            "gradients",
            f"along a random direction the automatic derivative is {worst.automatic:.6g} and finite differences give "
            f"{worst.differences:.6g}; bisection leads to {path}, where they are {at.automatic:.6g} and "
            f"{at.differences:.6g}",
            look,
            [path],
        )

    def is_cut(start: int, end: int) -> bool:
        return not slopes.gradient[start:end].any()

    # A leaf without any gradient is the clearest; the gradients of others may be wrong because of it.
    path, (slope, start, end) = max(
        wrong.items(),
        key=lambda item: (is_cut(*item[1][1:]), abs(item[1][0].differences - item[1][0].automatic)),
    )
    index, at = _bisect(slopes, slope, start, end, budget)
    others = [each for each in wrong if each != path]
    fail(
        "gradients",
        f"the gradient of {path} is {'cut' if is_cut(start, end) else 'wrong'}: at {index} the automatic derivative is "
        f"{at.automatic:.6g} and finite differences give {at.differences:.6g}"
        + (f" (also wrong: {format_list(others, 4)})" if others else ""),
        look,
        [path, *others],
    )


def _bisect(slopes: _Slopes, slope: _Slope, start: int, end: int, budget: Budget) -> tuple[str, _Slope]:
    """The wrong entry, or the smallest range that still shows it when time is up."""
    whole = end - start
    while end - start > 1 and budget.left() > 0:
        middle = (start + end) // 2
        tried = ((slopes.along(*half), half) for half in ((start, middle), (middle, end)))
        bad = next(((each, half) for each, half in tried if not each.agrees), None)
        if bad is None:
            break
        slope, (start, end) = bad
    path = slopes.of.path_of(start)
    if end - start == 1:
        return path, slopes.derivative(start)
    return f"{end - start} of {whole} entries from {path} on", slope
