"""One function with loops in it, as written and accelerated: the times and the memory of its gradient and its value.

This is what `lapwing explain FILE.py:FUNCTION --time` measures.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lapwing import loops
from lapwing.bench._compare import compare, compiled
from lapwing.core import format_bytes


def measure(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    rewrite: Any = "auto",
    seconds: float = 3.0,
    precision: float = 0.01,
) -> dict[str, Any]:
    """Measures `fn` at `args`; the gradient is for all floating-point arrays in them.

    **Returns** for the gradient and the value what `compare` finds: pairs are as written, then accelerated.

    >>> import jax.numpy as jnp
    >>> def loss(w, xs):
    ...     return jnp.sum(jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0], xs)[0])
    >>> found = measure(loss, (jnp.eye(3), jnp.ones((5, 2, 3))), seconds=0.01)
    >>> sorted(found), found["gradient"]["agrees"]
    (['gradient', 'value'], True)
    """
    leaves, tree = jax.tree.flatten(args)
    moving = [i for i, leaf in enumerate(leaves) if _is_float(leaf)]
    floats = [jnp.asarray(leaves[i]) for i in moving]

    def value_of(function: Callable[..., Any]) -> Callable[..., Any]:
        def value(*floats: Any) -> list[Any]:
            full = list(leaves)
            for i, leaf in zip(moving, floats, strict=True):
                full[i] = leaf
            return [y for y in jax.tree.leaves(function(*jax.tree.unflatten(tree, full))) if _is_float(y)]

        return value

    def gradient_of(function: Callable[..., Any]) -> Callable[..., Any]:
        def gradient(*floats: Any) -> Any:
            values, pull_back = jax.vjp(value_of(function), *floats)
            return values, pull_back([jnp.ones_like(value) for value in values])

        return gradient

    found = {}
    for part, of in {"gradient": gradient_of, "value": value_of}.items():
        with loops.as_written():
            plain = compiled(of(fn), floats)
        other = compiled(of(loops.accelerate(fn, rewrite=rewrite)), floats)
        found[part] = compare(plain, other, floats, seconds, precision)
    return found


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def report(found: dict[str, Any]) -> str:
    """The answer in a few lines: is my loop faster, and what does it cost?"""
    lines = [f"measured on {jax.devices()[0].device_kind}: medians of calls that take turns"]
    for part, row in found.items():
        before, after = (format_bytes(size) for size in row["temporary_bytes"])
        lines.append(f"{part}: {_verdict(row)}; temporary memory {before} as written, {after} accelerated")
        if not row["agrees"]:
            lines.append(
                f"{part}: the results differ by {row['error']:.1e}, more than rounding; please report this"
            )
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    before, after = (f"{ms:.3g} ms" for ms in row["ms"])
    if row["same_program"]:
        return f"{before}, as written: nothing in its loops is worth changing"
    ratio, sure = row["ratio"], row["uncertainty"]
    if abs(ratio - 1) <= max(sure, 0.01):
        return f"{before} as written, {after} accelerated, no difference (±{100 * sure:.1f}%)"
    faster = f"{ratio:.2f} times faster" if ratio > 1 else f"{1 / ratio:.2f} times slower"
    return f"{before} as written, {after} accelerated, {faster} (±{100 * sure:.1f}%)"
