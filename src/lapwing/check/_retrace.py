"""Steps that compile more than once.

The step is called as a training loop calls it, while `jax.monitoring` reports compilations. If one happens after the
first call, the arguments of that call are compared with those before it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.monitoring
import numpy as np

from lapwing.core import format_list

from ._partition import by_path, compiled_for, is_array, partition
from ._report import CheckInputError, Report, fail

_COMPILED = "/jax/core/compile/backend_compile_duration"
_WEAK = " (weakly typed)"


def retrace(
    step: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    *,
    carry: bool = False,
    weak_start: bool = False,
) -> Report:
    """`step(*args)`, for the `args` of each call, must compile in the first call only.

    With `carry`, the result of a call (the first element of a tuple) is the first argument of the next, as in a
    training loop. A function that is not compiled is compiled here. With `weak_start`, one more compilation is reported
    and no error where arguments only cease to be weakly typed, as the `jnp.log(10.0)` of an initialization does after
    the first step: a loop that compiles for shapes and dtypes, such as that of `fit`, compiles once.

    >>> import jax.numpy as jnp
    >>> print(retrace(lambda x: x + 1, [(jnp.ones(3),)] * 3))
    retrace: 3 calls, and nothing is compiled after the first
    >>> retrace(lambda x: x + 1, [(jnp.ones(3),), (jnp.ones(4),)])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: call 1 compiles again, since args[0] is float32[4] and was float32[3]. Look at ...
    """
    run = step if hasattr(step, "lower") else _compiled(step)
    before: dict[str, str] | None = None
    numbers_before: dict[str, Any] = {}
    result: Any = None
    number, weak = -1, ""
    for number, args in enumerate(calls):
        if carry and number:
            first = result[0] if isinstance(result, tuple) and not hasattr(result, "_fields") else result
            args = (first, *args[1:])
        now, numbers = _signature(args), _numbers(args)
        with _compilations() as compilations:
            result = jax.block_until_ready(run(*args))
        if before is not None and (compilations or before.keys() != now.keys()):
            changed = _only_weak(before, now) if weak_start and not weak else []
            if not changed:
                _explain(number, before, now, numbers_before, numbers)
            weak = (
                f" but once, since the first call is given numbers that are weakly typed: "
                f"{format_list(changed, 3)}; jit compiles twice for them, fit does not"
            )
        before, numbers_before = now, numbers
    if number < 1:
        raise CheckInputError(
            f"expected two calls or more, found {number + 1}; give the arguments of several steps"
        )
    return Report(
        "retrace", f"{number + 1} calls, and nothing is compiled after the first{weak}", {"calls": number + 1}
    )


def _only_weak(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """The arguments that changed, if all of them only ceased to be weakly typed, or became so."""
    changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
    same = all(
        before.get(path, "").removesuffix(_WEAK) == now.get(path, "").removesuffix(_WEAK) for path in changed
    )
    return changed if same else []


def _compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, compiled for its arrays and numbers, and again for each value of anything else."""
    jitted: dict[Any, Callable[..., Any]] = {}

    def call(*args: Any) -> Any:
        given = partition(args, _is_traced)
        key = tuple(_signature(args).items())
        if key not in jitted:
            jitted[key] = compiled_for(lambda leaves: step(*given.combine(leaves)))
        return jitted[key](list(given.leaves))

    return call


def _is_traced(leaf: Any) -> bool:
    return is_array(leaf) or isinstance(leaf, bool | int | float | complex)


def _signature(args: tuple[Any, ...]) -> dict[str, str]:
    """What jax compares to decide whether to compile: the type of each array or number, and other values themselves."""
    return {path: _described(leaf) for path, leaf in by_path(args, "args").items()}


def _numbers(args: tuple[Any, ...]) -> dict[str, Any]:
    """The Python numbers among the arguments, for each value of which a function compiles again if they are static."""
    return {
        path: leaf
        for path, leaf in by_path(args, "args").items()
        if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic)
    }


def _described(leaf: Any) -> str:
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return f"a Python {type(leaf).__name__}"
    if not is_array(leaf):
        return repr(leaf)
    weak = _WEAK if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}[{','.join(map(str, np.shape(leaf)))}]{weak}"


def _explain(
    number: int,
    before: dict[str, str],
    now: dict[str, str],
    numbers_before: dict[str, Any],
    numbers: dict[str, Any],
) -> None:
    changes = [
        f"{path} is {now.get(path, 'missing')} and was {before.get(path, 'missing')}"
        for path in dict.fromkeys([*before, *now])
        if before.get(path) != now.get(path)
    ]
    if changes:
        fail(
            "retrace",
            f"call {number} compiles again, since {format_list(changes, 5)}",
            "that argument: pad to one shape, start with an array of the type that the step returns, and pass numbers "
            "that change as arrays",
            changes,
        )
    other = [path for path, value in numbers.items() if numbers_before.get(path) != value]
    if other:
        changes = [f"{path} is {numbers[path]} and was {numbers_before.get(path)}" for path in other]
        fail(
            "retrace",
            f"call {number} compiles again, since {format_list(changes, 5)}: a Python number that is static, so that "
            "every value of it is another program",
            "static_argnums and static_argnames of the jax.jit, and functions that it closes over; pass a number that "
            "changes, such as a learning rate, as an array: jnp.asarray(learning_rate)",
            other,
        )
    fail(
        "retrace",
        f"call {number} compiles again, though no argument changed its type",
        "a jax.jit, a lambda or a partial that each call of the step creates again, and Python numbers that it closes "
        "over and that change (a learning rate)",
    )


@contextlib.contextmanager
def _compilations() -> Iterator[list[str]]:
    """The compilations that happen inside the block."""
    events: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
