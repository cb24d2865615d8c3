"""The optimizer as it is: the order of its parts, its decay and its schedule.

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
    _check_mask(made, params, decayed)
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
    each, state = _moved(made, params, jnp.zeros_like)
    _check_counts(state)
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


def _moved(made: Any, params: Any, gradient: Callable[[Any], Any]) -> tuple[dict[str, np.ndarray], Any]:
    """How far some updates with one gradient move the entries of each leaf, where all parameters are ones; and what the
    state of the optimizer is then."""
    like = lambda make: jax.tree.map(lambda leaf: make(leaf) if is_float(leaf) else leaf, params)  # noqa: E731

    def run(ones: Any, zeros: Any, gradient: Any) -> Any:
        state, moved = made.init(ones), zeros
        for _ in range(_UPDATES):
            update, state = made.update(gradient, state, ones)
            moved = jax.tree.map(jnp.add, moved, update)
        return moved, state

    try:
        moved, state = jax.jit(run)(like(jnp.ones_like), like(jnp.zeros_like), like(gradient))
    except Exception as error:
        raise CheckInputError(f"the optimizer needs more than a gradient and parameters: {error}") from None
    each = {path: np.asarray(leaf, np.float64).ravel() for path, leaf in by_path(moved, "params").items()}
    return each, state


def _check_mask(made: Any, params: Any, decayed: list[str]) -> None:
    """The mask of the decay leaves out biases and norms, not the matrices; those that are not trained do not count."""
    floats = {path: leaf for path, leaf in by_path(params, "params").items() if is_float(leaf)}
    large = [path for path, leaf in floats.items() if np.ndim(leaf) >= 2 and np.size(leaf) > 1]
    small = [path for path, leaf in floats.items() if np.ndim(leaf) == 1 and np.size(leaf) > 1]
    if not large or not small or not set(small) <= set(decayed) or set(large) & set(decayed):
        return
    moved, _ = _moved(made, params, jnp.ones_like)
    large = [path for path in large if moved[path].any()]
    if large:
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
