"""Functions that are not functions: they remember, they change what they are given, they use up their arguments.

The same arguments are given twice, in memory of their own. Results must be equal and in memory of their own too (a
cache that is written in place is not), and the arguments must be what they were.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list

from ._jaxprs import trace
from ._parts import as_function, cloned, is_array, is_module, module_state
from ._report import Report, found


def purity(function: Callable[..., Any], *args: Any) -> Report:
    """`function(*args)` must depend on its arguments alone and leave them as they are.

    Buffers that it is allowed to use up (donated ones) are told; one that it uses after that is found.

    >>> import numpy as np
    >>> print(purity(lambda x: x * 2, np.ones(3)))
    purity: two calls give the same results (1) and change nothing
    >>> calls = []
    >>> purity(lambda x: (calls.append(1), x * len(calls))[1], np.ones(3))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the same arguments give another result the second time: the result was 1.0 and
    is 2.0 at [0]. Look at ...
    """
    function = cloned(function)
    first, donated = _call(function, args)
    copied = _snapshot(first)
    second, _ = _call(function, args)
    _check_same(copied, second)
    _check_alias(first, second)
    same_trace(function, *args)
    told = f"; it uses up {format_list(donated, 3)}, which must not be used again" if donated else ""
    count = len(jax.tree.leaves(copied))
    return Report(
        "purity",
        f"two calls give the same results ({count}) and change nothing{told}",
        {"results": count, "donated": donated},
    )


def same_trace(function: Callable[..., Any], *args: Any) -> None:
    """Traced twice, a function must give the same program: Python's own state would show in it."""
    if hasattr(function, "lower"):
        # A compiled function remembers its first trace.
        function = getattr(function, "__wrapped__", function)
    try:
        one, other = (trace(as_function(function), *args)[0] for _ in range(2))
    except jax.errors.JAXTypeError:
        # What cannot be traced was called twice, and has to be content with that.
        return
    consts = zip(one.consts, other.consts, strict=False)
    if str(one) != str(other) or any(not _equal(a, b) for a, b in consts):
        found(
            "purity",
            "traced twice with the same arguments, the function is not the same program",
            "numbers drawn by numpy or random, counters, lists and caches that it reads from outside: under jax.jit "
            "they are frozen at the first call",
        )


def _snapshot(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf) if _is_plain(leaf) else leaf, tree)


def _is_plain(leaf: Any) -> bool:
    return is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _copies(args: Any) -> Any:
    """The same in memory of its own, which may be written to and given away."""
    modules_cloned = jax.tree.map(cloned, args, is_leaf=is_module)
    return jax.tree.map(
        lambda leaf: leaf.copy() if _is_plain(leaf) else leaf, modules_cloned, is_leaf=is_module
    )


def _call(function: Callable[..., Any], args: Any) -> tuple[Any, list[str]]:
    """The result of a call with copies, and the arguments that it used up."""
    given = _copies(args)
    was, state = _snapshot(given), module_state(function, given)
    try:
        result = jax.block_until_ready(function(*given))
    except (RuntimeError, ValueError) as error:
        if "deleted" not in str(error):
            raise
        found(
            "purity",
            f"a buffer is used after it was given away: {str(error).splitlines()[0].rstrip('.')}",
            "donate_argnums: what is donated to a call must not be read after it",
        )
    _check_state(state, module_state(function, given))
    for (path, now), before in zip(
        jax.tree_util.tree_flatten_with_path(given)[0], jax.tree.leaves(was), strict=True
    ):
        if isinstance(now, np.ndarray) and not _equal(now, before):
            place = f"args{jax.tree_util.keystr(path)}"
            found(
                "purity",
                f"the call changes its argument {place} in place, first at {_first(before, now)}",
                "assignments to slices, +=, and out= on that array; make a new one, or copy it first",
                [place],
            )
    return result, _donated(function, args)


def _donated(function: Callable[..., Any], given: Any) -> list[str]:
    """Which arguments a compiled function may use up, by its own account."""
    if not hasattr(function, "lower"):
        return []
    info = jax.tree_util.tree_flatten_with_path(function.lower(*given).args_info)[0]  # pyright: ignore
    return [f"args{jax.tree_util.keystr(path[1:])}" for path, each in info if each.donated]


def _check_same(first: Any, second: Any) -> None:
    pairs = zip(jax.tree_util.tree_flatten_with_path(first)[0], jax.tree.leaves(second), strict=False)
    for (path, a), b in pairs:
        if _is_plain(a) and not _equal(a, b):
            place = jax.tree_util.keystr(path) or "the result"
            where = _first(a, b)
            index = tuple(where)
            found(
                "purity",
                f"the same arguments give another result the second time: {place} was {np.asarray(a)[index]} and is "
                f"{np.asarray(b)[index]} at {where}",
                "what the function remembers: a cache, a counter, a module that updates itself, numbers drawn "
                "without a key",
                [place],
            )


def _check_alias(first: Any, second: Any) -> None:
    """Results of numpy that live in one memory: the second call overwrote what the first had given."""
    for (path, one), other in zip(
        jax.tree_util.tree_flatten_with_path(first)[0], jax.tree.leaves(second), strict=True
    ):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        if both and one.flags.writeable and np.shares_memory(one, other):
            place = jax.tree_util.keystr(path) or "the result"
            found(
                "purity",
                f"{place} of two calls is one and the same memory: the second call writes over what the first gave",
                "a buffer that is written in place and handed out each time (a cache of keys); return a copy",
                [place],
            )


def _check_state(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = [path for path, value in before.items() if not _equal(value, after.get(path))]
    if changed:
        found(
            "purity",
            f"the call changes the module itself: {format_list(changed, 4)}",
            "running statistics (BatchNorm in training); under jax.jit they have to be passed in and out, and in "
            "evaluation they should stand still",
            changed,
        )


def _equal(a: Any, b: Any) -> bool:
    if not (_is_plain(a) and _is_plain(b)):
        return True
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _first(a: Any, b: Any) -> list[int]:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return [0] * a.ndim
    apart = ~((a == b) | ((a != a) & (b != b)))
    return [int(i) for i in np.argwhere(apart)[0]] if apart.any() else [0] * a.ndim
