"""Two implementations of the same computation, and the difference that rounding explains.

The rounding error is measured where possible: the reference also runs in float64, and the other may be a few times as
far from that as the reference is. If it is farther, it may still be rounding, by an implementation that is less careful
(a long sum in a bad order): then both agree when both run in float64. If the code does not run in float64, the
tolerance is a number of roundings of the largest value.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._flat import float64, widened
from ._partition import arrays_in, as_function, by_path
from ._report import CheckInputError, Report, fail
from ._structure import structure

_TIMES = 8.0
_MEASURED_ROUNDINGS = 4.0
_GUESSED_ROUNDINGS = 500.0
# Beyond this fraction of the largest value the float64 run is another computation (it drew other random numbers).
_MOST = 0.05
# Two implementations that are this close in float64 are the same formula.
_SAME_FORMULA = 2.0**-36


def same_numbers(
    reference: Callable[..., Any],
    other: Callable[..., Any],
    *args: Any,
    tolerance: float | None = None,
    names: tuple[str, str] = ("the reference", "the other"),
) -> Report:
    """`reference(*args)` and `other(*args)` must be equal up to rounding.

    Use it for another engine, device or precision, or for `jit`; for gradients give `jax.grad` of both.

    **Arguments**

    - `tolerance`: an absolute difference that is allowed everywhere, instead of the measured one.
    - `names`: what the message calls the two.

    >>> import jax, jax.numpy as jnp
    >>> x = jnp.linspace(0, 1, 50)
    >>> print(same_numbers(lambda x: x / 3, jax.jit(lambda x: x * (1 / 3)), x))
    same_numbers: all numbers (50) agree; the largest difference is ... of the tolerance
    >>> same_numbers(jnp.cumsum, lambda x: jnp.cumsum(x).at[7:].add(0.001), x)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the reference and the other differ first at [7]: 0.571429 and 0.572429 differ by
    0.001, and rounding explains 9.5e-05 at most (float32; measured against float64); 43 of 50 numbers differ, at most
    by 0.001. Look at ...
    """
    reference, other = as_function(reference), as_function(other)
    ours, theirs = arrays_in(reference(*args)), arrays_in(other(*args))
    _check_shapes(ours, theirs, names)
    exact, as_exact = _in_float64(reference, args), None
    used, total = 0.0, 0
    pairs = zip(by_path(ours).items(), jax.tree.leaves(theirs), strict=True)
    for place, ((path, a), b) in enumerate(pairs):
        truth = None if exact is None else exact[place]
        a, b = np.asarray(a), np.asarray(b)
        allowed, how = _tolerance(a, b, truth) if tolerance is None else (tolerance, "the tolerance given")
        difference = _difference(a, b)
        total += a.size
        used = max(used, float(np.max(difference, initial=0.0)) / allowed if allowed else 0.0)
        if (difference > allowed).any():
            if tolerance is None and truth is not None:
                as_exact = as_exact or _in_float64(other, args)
                if as_exact is not None and _is_same_formula(truth, as_exact[place]):
                    continue
            _fail_different(path, a, b, difference, allowed, how, names)
    return Report(
        "same_numbers",
        f"all numbers ({total}) agree; the largest difference is {used:.0%} of the tolerance"
        + ("; it is rounding all the same: in float64 both agree" if used > 1 else ""),
        {"numbers": total, "used": used, "float64": exact is not None},
    )


def _check_shapes(ours: Any, theirs: Any, names: tuple[str, str]) -> None:
    """The same leaves and shapes; dtypes may differ."""
    shapes = [
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float32), tree)
        for tree in (ours, theirs)
    ]
    structure(**dict(zip((name.replace(" ", "_") for name in names), shapes, strict=True)))
    if not jax.tree.leaves(ours):
        raise CheckInputError("expected functions that return numbers, found none in what they returned")


def _in_float64(function: Callable[..., Any], args: tuple[Any, ...]) -> list[np.ndarray] | None:
    try:
        with float64():
            return [np.asarray(leaf) for leaf in jax.tree.leaves(arrays_in(function(*widened(args))))]
    except Exception:
        # Code that does not run in float64 is compared without it.
        return None


def _tolerance(a: np.ndarray, b: np.ndarray, exact: np.ndarray | None) -> tuple[float, str]:
    if not jnp.issubdtype(a.dtype, jnp.inexact) or not jnp.issubdtype(b.dtype, jnp.inexact):
        return 0.0, f"{a.dtype}; integers are exact"
    coarse = max(a.dtype, b.dtype, key=lambda dtype: float(jnp.finfo(dtype).eps))
    rounding = float(jnp.finfo(coarse).eps) * _largest(a)
    if exact is None or exact.shape != a.shape:
        return _GUESSED_ROUNDINGS * rounding, f"{coarse}; it does not run in float64"
    apart = float(np.max(_difference(a, exact), initial=0.0))
    if not apart <= _MOST * _largest(a):
        return _GUESSED_ROUNDINGS * rounding, f"{coarse}; float64 gives other numbers"
    return _TIMES * max(apart, _MEASURED_ROUNDINGS * rounding), f"{coarse}; measured against float64"


def _is_same_formula(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or not jnp.issubdtype(one.dtype, jnp.floating):
        return False
    return bool(np.all(_difference(one, other) <= _SAME_FORMULA * _largest(one)))


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array[np.isfinite(array)]).astype(np.float64), initial=0.0))


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Infinite where only one is finite, zero where both are the same infinity or NaN."""
    wide = np.complex128 if np.iscomplexobj(a) or np.iscomplexobj(b) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _fail_different(
    path: str, a: Any, b: Any, difference: Any, allowed: float, how: str, names: tuple[str, str]
) -> None:
    over = np.argwhere(difference > allowed)
    first = tuple(int(i) for i in over[0])
    where = f"{path}{list(first) if first else ''}" or "the scalar"
    fail(
        "same_numbers",
        f"{names[0]} and {names[1]} differ first at {where}: {a[first]:.6g} and {b[first]:.6g} differ by "
        f"{difference[first]:.2g}, and rounding explains {allowed:.2g} at most ({how}); {len(over)} of {a.size} "
        f"numbers differ, at most by {np.max(difference):.2g}",
        "what the two compute differently up to that index: another order of sums is rounding; another formula, a "
        "narrower dtype, or one step more or less is not",
        [where],
    )
