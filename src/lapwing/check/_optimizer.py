"""The optimizer as it is: the order of its parts, its decay, its schedule, and what a restored state changes.

An optax optimizer is a chain of functions that close over each other, so its order can be read: a clip behind the
scaling of Adam clips updates, not gradients. What cannot be read is tried on small gradients: with a gradient of zero
only decay moves a parameter, and a schedule counts one for each update.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._forgets import schedule_counts
from ._influence import changes
from ._partition import by_path, is_float
from ._report import CheckInputError, Report, fail

_CLIPS = ("clip", "clip_by_global_norm", "clip_by_norm")
_ADAPTIVE = (
    "scale_by_adam",
    "scale_by_rms",
    "scale_by_adamax",
    "scale_by_lion",
    "scale_by_amsgrad",
    "scale_by_adagrad",
)
_ADAPTIVE += (
    "scale_by_rss",
    "scale_by_nadam",
    "scale_by_yogi",
    "scale_by_belief",
    "scale_by_stddev",
    "scale_by_radam",
)
_UPDATES = 4
_STEPS = (0, 3, 17, 100, 1000, 7000)


def optimizer(optimizer: Any, params: PyTree, *, schedules: Sequence[Callable[[Any], Any]] = ()) -> Report:
    """An optax optimizer must clip before it scales, decay towards zero, and apply its schedule once.

    Weight decay of leaves with one axis or none (biases, norms) is reported, and no error.

    **Arguments**

    - `schedules`: functions of the step by which the updates are multiplied outside of the optimizer.

    >>> import jax.numpy as jnp, optax
    >>> params = {"w": jnp.ones((2, 2)), "b": jnp.ones(2)}
    >>> print(optimizer(optax.adamw(1e-3), params))
    optimizer: 1 of 2 leaves are biases or norms and decay too: params['b']; use the mask of the decay to leave them out
    >>> optimizer(optax.chain(optax.adam(1e-3), optax.clip_by_global_norm(1.0)), params)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: clip_by_global_norm comes after scale_by_adam: it clips the updates, and ...
    """
    made = transformation_of(optimizer)
    parts = list(_parts(made.update))
    _check_order(parts)
    _check_schedules([own for name, own in parts if name == "scale_by_schedule"], schedules)
    decayed = _check_decay(made, params)
    paths = by_path(params, "params")
    small = [path for path in decayed if np.ndim(paths[path]) < 2]
    _check_mask(decayed, paths)
    if not decayed:
        return Report("optimizer", f"{len(parts)} parts in order, no decay", {"decayed": []})
    if small:
        message = (
            f"{len(small)} of {len(paths)} leaves are biases or norms and decay too: {format_list(small, 4)}"
        )
        return Report(
            "optimizer", f"{message}; use the mask of the decay to leave them out", {"decayed": decayed}
        )
    return Report("optimizer", f"{len(decayed)} of {len(paths)} leaves decay", {"decayed": decayed})


def transformation_of(optimizer: Any) -> Any:
    """The functions of an optimizer; `optax.MultiSteps` makes them."""
    made = optimizer.gradient_transformation() if hasattr(optimizer, "gradient_transformation") else optimizer
    if not (hasattr(made, "init") and hasattr(made, "update")):
        raise CheckInputError(
            "expected an optimizer of optax, such as optax.adam(1e-3), which has init and update; found "
            + (
                "a function that makes one of a learning rate"
                if callable(made)
                else f"type {type(made).__name__}"
            )
        )
    return made


def schedules_of(optimizer: Any) -> list[Any]:
    """The schedules in a chain."""
    parts = _parts(transformation_of(optimizer).update)
    return [own for name, own in parts if name == "scale_by_schedule" and own is not None]


def _parts(function: Any, seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """The transformations of an optimizer in their order, by name, each with its schedule or its factor, if any."""
    function = getattr(function, "update", function)
    if isinstance(function, types.MethodType):  # Of optax.MultiSteps, which holds another optimizer.
        held = [item for each in vars(function.__self__).values() for item in _items(each)]
        yield from (part for item in held for part in _parts(item, seen))
        return
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen |= {id(function)}
    inner = inspect.getclosurevars(function).nonlocals
    name = function.__qualname__.partition(".")[0]
    found = [part for each in inner.values() for item in _items(each) for part in _parts(item, seen)]
    if name == "scale_by_schedule":
        yield name, inner.get("step_size_fn")
    elif name == "scale":
        yield name, inner.get("step_size")
    elif found:
        yield from found
    else:
        yield name, None


def _items(value: Any) -> list[Any]:
    if hasattr(value, "update") and hasattr(value, "init"):
        return [value]
    if isinstance(value, tuple | list):
        return [item for each in value for item in _items(each)]
    is_update = isinstance(value, types.FunctionType) and "update" in value.__name__
    return [value] if is_update else []


def _check_order(parts: Sequence[tuple[str, Any]]) -> None:
    names = [name for name, _ in parts]
    scaled = next((place for place, name in enumerate(names) if name in _ADAPTIVE), None)
    descends = next((place for place, part in enumerate(parts) if _is_negative(*part)), None)
    for place, name in enumerate(names):
        if name in _CLIPS and scaled is not None and place > scaled:
            fail(
                "optimizer",
                f"{name} comes after {names[scaled]}: it clips the updates, and a gradient that is too large has "
                "already changed the moments of the optimizer",
                f"the order of the chain: optax.chain(optax.{name}(…), optax.adam(…)), clipping first",
                [name],
            )
        if name in _CLIPS and descends is not None and place > descends:
            fail(
                "optimizer",
                f"{name} comes after the learning rate: it clips the updates, which are as much smaller than the "
                "gradients as the learning rate says, so that it hardly ever acts",
                f"the order of the chain: optax.chain(optax.{name}(…), optax.sgd(…)), clipping first",
                [name],
            )


def _is_negative(name: str, own: Any) -> bool:
    """Whether a part multiplies by a negative factor, as the learning rate of an optimizer does."""
    if own is None or name not in ("scale", "scale_by_schedule"):
        return False
    values = [own(jnp.asarray(step)) for step in _STEPS] if name == "scale_by_schedule" else [own]
    return bool(np.min([float(value) for value in values]) < 0)


def _check_schedules(own: list[Any], others: Sequence[Callable[[Any], Any]]) -> None:
    """Two schedules of one shape, neither of them constant, are one that is applied twice."""
    shapes = [shape for each in (*own, *others) if each is not None and (shape := _shape(each)) is not None]
    for place, shape in enumerate(shapes):
        if any(np.allclose(shape, other, rtol=1e-4) for other in shapes[:place]):
            fail(
                "optimizer",
                "a schedule is applied twice, so that its factor is squared: two parts multiply the updates by the "
                "same function of the step",
                "the schedule, which should be given once: to the optimizer (optax.adam(schedule)), or as "
                "Task.schedule, or in the config",
            )


def _shape(schedule: Callable[[Any], Any]) -> np.ndarray | None:
    """The schedule at some steps, relative to its largest; None for a constant."""
    values = np.abs([float(schedule(jnp.asarray(step))) for step in _STEPS])
    largest = values.max()
    return None if largest == 0 or np.ptp(values) < 1e-3 * largest else values / largest


def _check_decay(made: Any, params: Any) -> list[str]:
    """The leaves that an update without a gradient moves towards zero; an error if it moves them away."""
    ones = jax.tree.map(lambda leaf: jnp.ones_like(leaf) if is_float(leaf) else leaf, params)
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if is_float(leaf) else leaf, params)

    def run(ones: Any, zeros: Any) -> Any:
        state, moved = made.init(ones), zeros
        for _ in range(_UPDATES):
            update, state = made.update(zeros, state, ones)
            moved = jax.tree.map(jnp.add, moved, update)
        return moved, state

    try:
        moved, state = jax.jit(run)(ones, zeros)
    except Exception as error:
        raise CheckInputError(f"the optimizer needs more than a gradient and parameters: {error}") from None
    _check_counts(state)
    each = {path: np.asarray(leaf, np.float64).ravel() for path, leaf in by_path(moved, "params").items()}
    # Decay moves all entries of a leaf of ones by the same amount; noise does not.
    even = {
        path: leaf[0] for path, leaf in each.items() if leaf.size and np.ptp(leaf) <= 1e-6 * abs(leaf[0]) > 0
    }
    away = [path for path, size in even.items() if size > 0]
    if away:
        fail(
            "optimizer",
            f"without a gradient the optimizer moves {format_list(away, 4)} away from zero: its weight decay has the "
            "wrong sign, and the parameters grow",
            "the place of the decay in the chain: before the learning rate and its minus sign, as in "
            "optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(…), optax.scale_by_learning_rate(…))",
            away,
        )
    return list(even)


def _check_mask(decayed: list[str], leaves: dict[str, Any]) -> None:
    """The mask of the decay leaves out biases and norms, not the matrices."""
    floats = {path: leaf for path, leaf in leaves.items() if is_float(leaf)}
    large = [path for path, leaf in floats.items() if np.ndim(leaf) >= 2 and np.size(leaf) > 1]
    small = [path for path, leaf in floats.items() if np.ndim(leaf) == 1 and np.size(leaf) > 1]
    if large and small and set(small) <= set(decayed) and not set(large) & set(decayed):
        fail(
            "optimizer",
            f"the weight decay acts on the vectors ({format_list(small, 4)}) and on no matrix "
            f"({format_list(large, 4)}): its mask is the other way round",
            "the mask of the decay, which is True for what should decay: "
            "jax.tree.map(lambda leaf: leaf.ndim >= 2, params)",
            small,
        )


def _check_counts(state: Any) -> None:
    for count in schedule_counts(state):
        if int(count) > _UPDATES:
            fail(
                "optimizer",
                f"after {_UPDATES} updates a schedule has counted {int(count)}: it is too fast",
                "what calls the update of the optimizer, or raises its count, more than once in a step",
            )


def resume(
    step: Callable[[PyTree, PyTree], Any],
    state: PyTree,
    batches: Sequence[PyTree],
    restore: Callable[[PyTree], PyTree],
) -> Report:
    """A run that is saved and restored in the middle must be the run that was not interrupted, bit by bit.

    **Arguments**

    - `step(state, batch)` returns the next state, or a tuple that begins with it.
    - `batches`: those of some steps; the state is restored after half of them.
    - `restore(state)`: saves the state and returns what a new process would load.

    >>> import jax.numpy as jnp
    >>> def step(state, x):
    ...     speed = 0.9 * state["speed"] + x
    ...     return {"w": state["w"] - 0.1 * speed, "speed": speed}
    >>> start = {"w": jnp.ones(2), "speed": jnp.zeros(2)}
    >>> print(resume(step, start, [jnp.ones(2)] * 4, lambda state: state))
    optimizer: after 4 steps, a run restored in the middle has the state of one that was not interrupted (2 leaves)
    >>> resume(step, start, [jnp.ones(2)] * 4, lambda state: state | {"speed": jnp.zeros(2)})
    Traceback (most recent call last):
    lapwing.check._report.CheckError: a run that is restored differs from one that is not: state['speed'] was not ...
    """
    if len(batches) < 2:
        raise CheckInputError(f"expected two batches or more, found {len(batches)}")
    first = lambda result: result[0] if type(result) is tuple else result  # noqa: E731
    half = len(batches) // 2
    for batch in batches[:half]:
        state = first(step(state, batch))
    before, restored = by_path(state, "state"), restore(state)
    loaded = by_path(restored, "state")
    lost = [path for path in before if path not in loaded or changes([before[path]], [loaded[path]])[0].any()]
    plain, other = state, restored
    for batch in batches[half:]:
        plain, other = first(step(plain, batch)), first(step(other, batch))
    ours, theirs = by_path(plain, "state"), by_path(other, "state")
    apart = [path for path in ours if path not in theirs or not np.array_equal(ours[path], theirs[path])]
    if apart:
        where = (
            f"{format_list(lost, 4)} was not restored"
            if lost
            else f"{format_list(apart, 4)} comes out differently"
        )
        fail(
            "optimizer",
            f"a run that is restored differs from one that is not: {where}",
            "what is saved: parameters, the state of the optimizer, its counts, random keys, statistics, and the place "
            "in the data",
            lost or apart,
        )
    message = f"after {len(batches)} steps, a run restored in the middle has the state of one that was not interrupted"
    return Report("optimizer", f"{message} ({len(ours)} leaves)", {"leaves": len(ours)})
