"""Parameters, inputs and settings without effect.

A gradient that is exactly zero over several batches can be harmless: a later layer starts at zero, or the entry was
not in use. So the gradient is computed again with all trained parameters perturbed, and only whole leaves count. A
leaf without gradient is then perturbed alone: if the loss changes, the gradient is cut; if not, it has no effect. An
expert or a head that these batches do not use is idle, which is reported and no alarm.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from lapwing.core import format_list

from ._influence import changes, is_drawable
from ._partition import (
    Partition,
    by_path,
    is_array,
    is_float,
    parameters_in,
    partition,
    scalar_of,
    trained_entries,
)
from ._program import read
from ._report import CheckInputError, Report, fail

_REDRAWN = 12  # Batches of other values, to see what these would use.


def dead_parameters(
    loss: Callable[..., Any],
    params: PyTree,
    batches: Sequence[PyTree] = (),
    *,
    trainable: PyTree[bool] | None = None,
    ignore: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """Every trained parameter and every array of the batch must have an effect on `loss(params, batch)`.

    **Arguments**

    - `batches`: several batches; without them the loss is `loss(params)`.
    - `trainable`: a tree like `params` of bools or boolean arrays.
    - `ignore`: paths that need no effect, written as in the message.

    >>> import jax.numpy as jnp
    >>> params = {"w": jnp.ones(3), "latents": jnp.ones(4)}
    >>> dead_parameters(lambda p, x: jnp.sum(p["w"] * x + 0 * p["latents"].sum()), params, [jnp.arange(3.0)])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: params['latents'] (4 entries) has no effect on the loss. Look at ...
    """
    random = np.random.default_rng(seed)
    chosen = parameters_in(params)
    leaves, trained = list(map(np.asarray, chosen.leaves)), trained_entries(chosen, params, trainable)
    value, gradient = _compiled(loss, chosen, batches)
    given = [partition(batch, is_array, "batch") for batch in batches] or [Partition((), (), lambda _: None)]
    # Only what is trained can move: a gate that is frozen at zero stays there.
    perturbed = [
        np.where(mask, _perturbed(leaf, random), leaf) for mask, leaf in zip(trained, leaves, strict=True)
    ]
    alive = [np.zeros(np.shape(leaf), bool) for leaf in leaves]
    for point in (leaves, perturbed):
        for batch in given:
            for so_far, slope in zip(alive, gradient(point, list(batch.leaves)), strict=True):
                so_far |= np.asarray(slope, np.float64) != 0
    dead = [
        place
        for place, path in enumerate(chosen.paths)
        if trained[place].any() and not (alive[place] & trained[place]).any() and path not in ignore
    ]
    idle_leaves = _idle(gradient, leaves, dead, trained, given, random)
    balanced = [
        place for place in dead if place not in idle_leaves and _cancels(loss, chosen, leaves, place, batches)
    ]
    dead = [place for place in dead if place not in balanced]
    wrong = {}
    for place, path in enumerate(chosen.paths):
        if place in dead and place not in idle_leaves:
            size = f"({np.size(leaves[place])} entries)"
            if _has_effect(value, leaves, place, given, random):
                wrong[path] = f"{path} {size} changes the loss, but its gradient is exactly zero: it is cut"
            else:
                wrong[path] = f"{path} {size} has no effect on the loss"
    for path in _dead_inputs(value, perturbed, given, random):
        if path not in ignore:
            wrong[path] = f"{path} has no effect on the loss"
    if wrong:
        fail(
            "dead_parameters",
            format_list(list(wrong.values())),
            _look(loss, params, batches, list(wrong)),
            list(wrong),
        )
    inputs = sum(path not in ignore for path in given[0].paths)
    idle = sum(int((mask & ~entries).sum()) for mask, entries in zip(trained, alive, strict=True))
    total = sum(int(mask.sum()) for mask in trained)
    idle_paths = [chosen.paths[place] for place in idle_leaves]
    cancels = [chosen.paths[place] for place in balanced]
    shifts = (
        f"; the loss does not see a shift by {format_list(cancels, 4)}, whose effects cancel"
        if cancels
        else ""
    )
    note = f"; no effect in these batches, but in others: {format_list(idle_paths, 4)}" if idle_paths else ""
    return Report(
        "dead_parameters",
        f"every leaf of the parameters ({len(leaves)}) and of the batch ({inputs}) has an effect; "
        f"{idle} of {total} entries had no gradient{note}{shifts}",
        {
            "leaves": len(leaves),
            "entries": total,
            "idle_entries": idle,
            "batches": len(batches),
            **({"idle_leaves": idle_paths} if idle_paths else {}),
            **({"cancelling_leaves": cancels} if cancels else {}),
        },
    )


def dead_settings(function: Callable[..., Any], **alternatives: Sequence[Any]) -> Report:
    """Every setting must make a difference: `function(setting=value)` must not be the same for all its values.

    >>> dead_settings(lambda steps=1, latents=4: steps * 1.5, steps=(1, 2), latents=(4, 8))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: latents makes no difference: 4, 8 give the same result. Look at ...
    """
    if not alternatives or any(len(values) < 2 for values in alternatives.values()):
        raise CheckInputError(
            "expected two values or more for each setting; write dead_settings(f, latents=(4, 8))"
        )
    idle = {}
    for name, values in alternatives.items():
        first, *others = (jax.tree.leaves(function(**{name: value})) for value in values)
        if all(len(other) == len(first) and not _differ(first, other) for other in others):
            idle[name] = f"{name} makes no difference: {', '.join(map(str, values))} give the same result"
    if idle:
        fail(
            "dead_parameters",
            format_list(list(idle.values())),
            "whether the setting reaches the code that should use it, and whether what it adds is read afterwards",
            list(idle),
        )
    return Report(
        "dead_parameters", f"{', '.join(alternatives)} make a difference", {"settings": list(alternatives)}
    )


def _differ(one: list[Any], other: list[Any]) -> bool:
    return any(np.shape(a) != np.shape(b) for a, b in zip(one, other, strict=True)) or any(
        flags.any() for flags in changes(one, other)
    )


def _look(loss: Callable[..., Any], params: PyTree, batches: Sequence[PyTree], paths: list[str]) -> str:
    """Marks along the time that a loop does not read are most often where something begins."""
    arrays = by_path(batches[0], "batch") if batches else {}
    are_marks = all(
        path in arrays and arrays[path].dtype == bool and np.ndim(arrays[path]) > 1 for path in paths
    )
    if are_marks and any(
        eqn.primitive.name == "scan" for eqn in read(loss, params=params, batch=batches[0]).eqns
    ):
        return (
            "whether the memory of a loop should be reset where it is true (the beginning of an episode or a "
            "document), and whether it should mask a part of the loss"
        )
    return (
        "whether it is used at all, is multiplied by zero or masked, is overwritten before it is read, or is only used "
        "behind a stop_gradient"
    )


def _compiled(loss: Callable[..., Any], chosen: Partition, batches: Sequence[Any]) -> tuple[Any, Any]:
    combine = partition(batches[0], is_array).combine if batches else None

    def of_leaves(leaves: list[Any], arrays: list[Any]) -> Any:
        batch = () if combine is None else (combine(arrays),)
        return scalar_of(loss(chosen.combine(leaves), *batch))

    return jax.jit(of_leaves), jax.jit(jax.grad(of_leaves))


def _perturbed(leaf: Any, random: np.random.Generator, factor: float = 1.0) -> np.ndarray:
    """Noise of a tenth of the leaf's scale is added, or of 0.1 if it is all zero; infinities and NaNs stay."""
    array = np.array(leaf, np.float64)
    finite = np.isfinite(array)
    numbers = array[finite]
    size = float(np.sqrt(np.mean(numbers**2))) if numbers.size else 0.0
    array[finite] = numbers + factor * 0.1 * (size or 1.0) * random.normal(size=numbers.shape)
    return array.astype(leaf.dtype)


def _idle(
    gradient: Any,
    leaves: list[Any],
    dead: list[int],
    trained: list[np.ndarray],
    given: list[Partition],
    random: np.random.Generator,
) -> list[int]:
    """The leaves without gradient that other inputs would use: an expert that no token chose, the head of another task.

    What has a gradient (a router) is perturbed strongly, and the batch replaced; what has none stays, so that a unit
    that is off whatever its input is stays off. Where nothing at all has a gradient, nothing is idle.
    """
    waiting = set(dead)
    if len(dead) == sum(mask.any() for mask in trained):
        return []
    for trial in range(_REDRAWN if waiting and given[0].leaves else 0):
        point = [
            leaf if place in dead else np.where(mask, _perturbed(leaf, random, 10.0 * (trial % 3)), leaf)
            for place, (leaf, mask) in enumerate(zip(leaves, trained, strict=True))
        ]
        batch = [_other_values(leaf, random) for leaf in given[trial % len(given)].leaves]
        slopes = [np.asarray(slope, np.float64) for slope in gradient(point, batch)]
        waiting -= {place for place in waiting if np.isfinite(slopes[place]).all() and slopes[place].any()}
    return [place for place in dead if place not in waiting]


def _cancels(
    loss: Callable[..., Any], chosen: Partition, leaves: list[Any], place: int, batches: Sequence[PyTree]
) -> bool:
    """Whether a leaf has an effect in several places that cancel, as the last bias of a network of which a loss has
    differences only: the gradient with respect to what it is spread out to is not zero."""
    if not batches or np.ndim(leaves[place]) > 1:
        return False
    params = chosen.combine(leaves)
    try:
        program = read(lambda params, batch: scalar_of(loss(params, batch)), params=params, batch=batches[0])
    except Exception:
        return False
    var = program.inputs["params"][chosen.paths[place]]
    spread = [
        eqn.outvars[0] for eqn in program.readers.get(var, ()) if eqn.primitive.name == "broadcast_in_dim"
    ]
    if not spread:
        return False
    run = program.evaluator(program.closed.jaxpr.outvars[:1], spread)
    trees = (params, batches[0])
    values = program.values(spread, *trees)
    slopes = jax.grad(lambda others: run(*trees, others=others)[0])(values)
    return any(np.isfinite(slope).all() and np.any(slope) for slope in map(np.asarray, slopes))


def _other_values(leaf: Any, random: np.random.Generator) -> Any:
    """An array of other values: normal numbers of three times its size, or integers a little beyond its largest."""
    if not is_drawable(leaf):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind in "iu":
        low, high = int(array.min(initial=0)), int(array.max(initial=0))
        return random.integers(low, min(high + 9, np.iinfo(array.dtype).max), array.shape).astype(array.dtype)
    if is_float(leaf):
        size = float(np.std(np.asarray(array, np.float64))) or 1.0
        return (3 * size * random.normal(size=array.shape)).astype(array.dtype)
    return leaf


def _has_effect(value: Any, leaves: list[Any], place: int, given: list[Partition], random: Any) -> bool:
    for factor in (1.0, 10.0):
        other = list(leaves)
        other[place] = _perturbed(leaves[place], random, factor)
        if any(value(leaves, list(b.leaves)) != value(other, list(b.leaves)) for b in given):
            return True
    return False


def _dead_inputs(
    value: Any, leaves: list[Any], given: list[Partition], random: np.random.Generator
) -> list[str]:
    idle = []
    for place, path in enumerate(given[0].paths):
        arrays = [np.asarray(batch.leaves[place]) for batch in given if is_drawable(batch.leaves[place])]
        # A constant array has no other value to draw.
        if not arrays or np.unique(arrays[0]).size < 2:
            continue
        has_effect = False
        for batch in given:
            other = list(batch.leaves)
            other[place] = random.choice(np.ravel(other[place]), np.shape(other[place]))
            has_effect = has_effect or bool(value(leaves, list(batch.leaves)) != value(leaves, other))
        if not has_effect:
            idle.append(path)
    return idle
