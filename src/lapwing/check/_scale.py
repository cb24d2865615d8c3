"""Loops whose values or gradients explode or vanish from step to step.

Every `jax.lax.scan` in the trace of a function runs with two additions: each step returns the norm of its carry, and
adds a zero to it. The gradient with respect to these zeros is the gradient of the loss with respect to the carry at
every step, which is what explodes or vanishes on the way back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.jaxprs import Loop

from ._jaxprs import trace
from ._loops import ScanStep, loops_in, run_with_scans, zeros_for
from ._partition import as_function
from ._report import CheckInputError, Report, fail

# The digits of float32: beyond them the first values are lost next to the last.
_EXPLODED = 2.0**23
_VANISHED = 1e-10
_LEAST_RATE = 0.05  # 5% a step, in each of the last ones: no sum of many steps does that.


class Norms(NamedTuple):
    """A loop: its source line, and the norms of the carry and of its gradient at each step."""

    place: str
    values: np.ndarray
    gradients: np.ndarray


def scale(
    function: Callable[..., Any], *args: Any, exploded: float = _EXPLODED, vanished: float = _VANISHED
) -> Report:
    """The carry of every scan in `function(*args)`, and its gradient, must keep its size.

    **Arguments**

    - `function`: a loss; if it does not return a scalar, the sum of its outputs is used.
    - `exploded`: the largest factor by which the norm may grow over a loop; one that grows by its square root, at a
      steady rate per step that has not fallen, explodes too.
    - `vanished`: the smallest norm of the gradient on the way back, relative to its largest.

    **Returns** a report whose `facts["loops"]` has all norms.

    >>> import jax
    >>> def run(w):
    ...     return jax.lax.scan(lambda h, _: (w * h, None), 1.0, length=100)[0]
    >>> print(scale(run, jax.numpy.float32(1.01)))
    scale: 1 loop keeps its size; over 100 steps values grow by 2.7, gradients by 2.7 on the way back
    >>> scale(run, jax.numpy.float32(2.0))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: values explode in the loop at ...: their norm grows from 2 to 1.27e+30 at step 99,
    a factor of 2 per step, and exceeds 10 times the first from step 4 on. Look at ...
    """
    measured = loop_norms(function, *args)
    if not measured:
        raise CheckInputError("there is no jax.lax.scan in this function; a Python loop cannot be checked")
    for loop in measured:
        _check_values(loop, exploded)
        _check_gradients(loop, exploded, vanished)
    longest = max(measured, key=lambda loop: len(loop.values))
    keeps = "1 loop keeps its size" if len(measured) == 1 else f"{len(measured)} loops keep their size"
    up, back = _growth(longest.values), _growth(longest.gradients[::-1])
    return Report(
        "scale",
        f"{keeps}; over {len(longest.values)} steps values grow by {up:.2g}, gradients by {back:.2g} on the way back",
        {"loops": [{"place": p, "values": v.tolist(), "gradients": g.tolist()} for p, v, g in measured]},
    )


def loop_norms(function: Callable[..., Any], *args: Any) -> list[Norms]:
    """The norms of all loops with a floating-point carry, in the order in which they run."""
    program, given = trace(as_function(function), *args)
    loops = loops_in(program.jaxpr)

    def run(zeros: list[Any]) -> tuple[Any, list[Any]]:
        norms: list[Any] = []
        waiting = iter(zeros)

        def step_of(body: ScanStep) -> ScanStep:
            def step(carry: list[Any], x: Any) -> Any:
                x, nudges = x
                carry, y = body(carry, x)
                carry = [_nudged(value, nudge) for value, nudge in zip(carry, nudges, strict=True)]
                return carry, (y, _norm(jax.lax.stop_gradient(carry)))

            return step

        def on_scan(loop: Loop, body: ScanStep, carry: Any, xs: Any) -> tuple[Any, Any]:
            carry, (ys, norm) = loop.iterate(step_of(body), carry, (xs, next(waiting)))
            norms.append(norm)
            return carry, ys

        outputs = run_with_scans(program, given.leaves, on_scan)
        floats = [
            jnp.sum(out.astype(jnp.float32)) for out in outputs if jnp.issubdtype(out.dtype, jnp.floating)
        ]
        total = outputs[0] if jnp.shape(outputs[0]) == () and floats else sum(floats, jnp.zeros(()))
        return total, norms

    zeros = [zeros_for(loop) for _, loop in loops]
    if not zeros:
        return []
    slopes, norms = jax.jit(jax.grad(run, has_aux=True))(zeros)
    measured = []
    for (place, loop), slope, norm in zip(loops, slopes, norms, strict=True):
        if not any(each is not None for each in slope):
            continue
        values, back = np.asarray(norm), np.asarray(_norms_by_step(slope))
        measured.append(Norms(place, *((x[::-1] if loop.reverse else x) for x in (values, back))))
    return measured


def _nudged(value: Any, nudge: Any) -> Any:
    return value if nudge is None else value + nudge


def _norm(carry: list[Any]) -> Any:
    floats = [each.astype(jnp.float32).ravel() for each in carry if jnp.issubdtype(each.dtype, jnp.floating)]
    return _length(jnp.concatenate(floats)) if floats else jnp.zeros(())


def _norms_by_step(slopes: list[Any]) -> Any:
    rows = [slope.astype(jnp.float32).reshape(len(slope), -1) for slope in slopes if slope is not None]
    return jax.vmap(_length)(jnp.concatenate(rows, axis=1))


def _length(vector: Any) -> Any:
    """The norm, also of numbers whose squares overflow float32."""
    largest = jnp.max(jnp.abs(vector), initial=0.0)
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1.0)
    return unit * jnp.sqrt(jnp.sum(jnp.square(vector / unit)))


def _growth(norms: np.ndarray) -> float:
    """From the first step with a norm to the last."""
    sizes = norms[norms > 0]
    return float(sizes[-1] / sizes[0]) if sizes.size else 1.0


def _check_values(loop: Norms, exploded: float) -> None:
    values = loop.values
    if not np.isfinite(values).all():
        step = int(np.argmax(~np.isfinite(values)))
        fail(
            "scale",
            f"the carry of the loop at {loop.place} is {values[step]} from step {step} of {len(values)} on",
            f"step {step}: a division, a logarithm or an exponential, or growth before it "
            f"({_shown(values[:step])})",
            [f"step {step}"],
        )
    if _explodes(values, exploded):
        start = int(np.argmax(values > 10 * _first(values)))
        fail(
            "scale",
            f"values explode in the loop at {loop.place}: their norm grows from {_first(values):.3g} to "
            f"{values[-1]:.3g} at step {len(values) - 1}, {_rate(values)}, and exceeds 10 times the first from "
            f"step {start} on",
            "the scale of the recurrent weights, and whether something bounds the carry (a saturating activation, a "
            "norm, a gate)",
            [f"step {start}"],
        )


def _check_gradients(loop: Norms, exploded: float, vanished: float) -> None:
    back = loop.gradients[::-1]
    look = "the recurrent weights (their largest singular value), the initial gates, and clipping"
    last = len(back) - 1
    if not np.isfinite(back).all():
        step = last - int(np.argmax(~np.isfinite(back)))
        fail(
            "scale",
            f"the gradient in the loop at {loop.place} is not finite before step {step}",
            look,
            [f"step {step}"],
        )
    if _explodes(back, exploded):
        start = last - int(np.argmax(back > 10 * _first(back)))
        fail(
            "scale",
            f"gradients explode in the loop at {loop.place}: on the way back their norm grows from {_first(back):.3g} "
            f"at step {last} to {back[-1]:.3g} at step 0, {_rate(back)}, and exceeds 10 times the first before step "
            f"{start}",
            look,
            [f"step {start}"],
        )
    largest = float(back.max(initial=0.0))
    # Exact zeros are steps that nothing depends on (see check.dead_parameters).
    small = np.flatnonzero((back < vanished * largest) & (back > 0))
    if small.size and back[-1] < vanished * largest:
        step = last - int(small[0])
        fail(
            "scale",
            f"gradients vanish in the loop at {loop.place}: their norm is {largest:.3g} at its largest and "
            f"{back[-1]:.3g} at step 0, {_rate(back)}; nothing is learned from the steps before {step}",
            look,
            [f"step {step}"],
        )


def _first(norms: np.ndarray) -> float:
    return float(norms[norms > 0][0]) if (norms > 0).any() else 0.0


def _explodes(norms: np.ndarray, exploded: float) -> bool:
    """Grown by the factor and still growing in the second half: a carry that starts near zero and settles is fine.

    Or grown step by step, at a rate that reaches the factor in twice as many steps: a sum grows, and its rate falls.
    """
    late = norms[len(norms) // 2 :]
    if _growth(norms) > exploded and float(late[-1]) > exploded**0.25 * float(late[0]):
        return True
    steps = np.diff(np.log(np.maximum(late, np.finfo(np.float32).tiny)))
    rate = float(np.median(steps)) if steps.size else 0.0
    is_steady = rate > _LEAST_RATE and float(np.quantile(steps, 0.25)) > 0.5 * rate if steps.size else False
    return is_steady and _growth(norms) > exploded**0.5 and rate * 2 * len(norms) > np.log(exploded)


def _rate(norms: np.ndarray) -> str:
    steps = max(1, int((norms > 0).sum()) - 1)
    return f"a factor of {_growth(norms) ** (1 / steps):.3g} per step"


def _shown(norms: np.ndarray) -> str:
    return "norms " + ", ".join(f"{each:.3g}" for each in norms[-4:]) if norms.size else "it is the first"
