"""Functions that are not pure: they keep state, change their arguments, or use a donated buffer.

The function is called twice with copies of the same arguments. The results must be equal and share no memory (a cache
that is written in place does), and the arguments must be unchanged.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from lapwing.core import format_list

from ._jaxprs import trace
from ._partition import as_function, by_path, cloned, is_array, is_module, module_state
from ._report import Report, fail


def purity(function: Callable[..., Any], *args: Any) -> Report:
    """`function(*args)` must depend on its arguments alone and leave them unchanged.

    Donated arguments are listed in the report; using one after its donation fails.

    >>> import numpy as np
    >>> print(purity(lambda x: x * 2, np.ones(3)))
    purity: two calls give the same results (1) and change nothing
    >>> calls = []
    >>> purity(lambda x: (calls.append(1), x * len(calls))[1], np.ones(3))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the same arguments give a different result the second time: the result was 1.0
    and is 2.0 at [0]. Look at ...
    """
    function = cloned(function)
    first, donated = _call(function, args)
    copied = _snapshot(first)
    second, _ = _call(function, args)
    _check_same(copied, second)
    _check_alias(first, second)
    _check_trace(function, args)
    note = f"; it donates {format_list(donated, 3)}, which must not be used again" if donated else ""
    count = len(jax.tree.leaves(copied))
    return Report(
        "purity",
        f"two calls give the same results ({count}) and change nothing{note}",
        {"results": count, "donated": donated},
    )


def check_same_program(one: ClosedJaxpr, other: ClosedJaxpr) -> None:
    """Two traces of a function with the same arguments must be equal: Python state shows in them."""
    consts = zip(one.consts, other.consts, strict=False)
    if str(one) != str(other) or any(not _equal(a, b) for a, b in consts):
        fail(
            "purity",
            "traced twice with the same arguments, the function is not the same program",
            "numbers drawn by numpy or random, counters, lists and caches that it reads from outside: under jax.jit "
            "they keep the value of the first call",
        )


def _check_trace(function: Callable[..., Any], args: Any) -> None:
    if hasattr(function, "lower"):
        # A compiled function keeps its first trace.
        function = getattr(function, "__wrapped__", function)
    try:
        one, other = (trace(as_function(function), *args)[0] for _ in range(2))
    except jax.errors.JAXTypeError:
        # For a function that cannot be traced, two calls must do.
        return
    check_same_program(one, other)


def _snapshot(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf) if _is_plain(leaf) else leaf, tree)


def _is_plain(leaf: Any) -> bool:
    return is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _copies(args: Any) -> Any:
    """Copies that may be written to and donated."""
    modules_cloned = jax.tree.map(cloned, args, is_leaf=is_module)
    return jax.tree.map(
        lambda leaf: leaf.copy() if _is_plain(leaf) else leaf, modules_cloned, is_leaf=is_module
    )


def _call(function: Callable[..., Any], args: Any) -> tuple[Any, list[str]]:
    """The result of a call with copies, and the arguments that it donates."""
    given = _copies(args)
    before, state = _snapshot(given), module_state(function, given)
    try:
        result = jax.block_until_ready(function(*given))
    except (RuntimeError, ValueError) as error:
        if "deleted" not in str(error):
            raise
        fail(
            "purity",
            f"a buffer is used after it was donated: {str(error).splitlines()[0].rstrip('.')}",
            "donate_argnums: an argument must not be read after the call it was donated to",
        )
    _check_state(state, module_state(function, given))
    for (name, now), was in zip(by_path(given, "args").items(), jax.tree.leaves(before), strict=True):
        if isinstance(now, np.ndarray) and not _equal(now, was):
            fail(
                "purity",
                f"the call changes its argument {name} in place, first at {_first(was, now)}",
                "assignments to slices, +=, and out= on that array; make a new one, or copy it first",
                [name],
            )
    return result, _donated(function, args)


def _donated(function: Callable[..., Any], given: Any) -> list[str]:
    if not hasattr(function, "lower"):
        return []
    # That of `eqx.filter_jit` does not say.
    info, _ = getattr(function.lower(*given), "args_info", ((), {}))  # pyright: ignore
    return [path for path, each in by_path(info, "args").items() if each.donated]


def _check_same(first: Any, second: Any) -> None:
    for (path, a), b in zip(by_path(first).items(), jax.tree.leaves(second), strict=False):
        if _is_plain(a) and not _equal(a, b):
            name, where = path or "the result", _first(a, b)
            was, now = (np.asarray(each)[tuple(where)] for each in (a, b))
            fail(
                "purity",
                f"the same arguments give a different result the second time: {name} was {was} and is {now} at {where}",
                "state that the function keeps: a cache, a counter, a module that updates itself, numbers drawn "
                "without a key",
                [name],
            )


def _check_alias(first: Any, second: Any) -> None:
    """numpy results that share memory: the second call overwrote the result of the first."""
    for (path, one), other in zip(by_path(first).items(), jax.tree.leaves(second), strict=True):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        if both and one.flags.writeable and np.shares_memory(one, other):
            name = path or "the result"
            fail(
                "purity",
                f"two calls return {name} in the same memory: the second call overwrites what the first returned",
                "a buffer that is written in place and returned by each call (a cache of keys); return a copy",
                [name],
            )


def _check_state(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = [path for path, value in before.items() if not _equal(value, after.get(path))]
    if changed:
        fail(
            "purity",
            f"the call changes the module itself: {format_list(changed, 4)}",
            "running statistics (BatchNorm in training); under jax.jit they have to be passed in and out, and in "
            "evaluation they should not change",
            changed,
        )


def _equal(a: Any, b: Any) -> bool:
    if not (_is_plain(a) and _is_plain(b)):
        return True
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _first(a: Any, b: Any) -> list[int]:
    """The first index at which two arrays differ."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return [0] * a.ndim
    differ = ~((a == b) | ((a != a) & (b != b)))
    return [int(i) for i in np.argwhere(differ)[0]] if differ.any() else [0] * a.ndim
