"""Parameters, inputs and settings that do nothing.

A gradient that is exactly zero over several batches may have two reasons that are no fault: a layer behind it begins at
zero, or the entry was not in use. So it is taken once more with all parameters moved, and only whole leaves count. What
remains is then moved alone: if the loss moves with it, its gradient is cut; if not, it has no effect.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.core import format_list

from ._influence import is_drawable, moved
from ._line import trained_entries
from ._parts import Parts, is_array, is_float, needs_parameters, parts, scalar_of
from ._report import CheckInputError, Report, found


def dead_parameters(
    loss: Callable[..., Any],
    params: Any,
    batches: Sequence[Any] = (),
    *,
    trainable: Any = None,
    ignore: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """Every parameter and every array of the batch must have an effect on `loss(params, batch)`.

    Without batches it is `loss(params)`. `ignore` lists paths that need none, as the message writes them.

    >>> import jax.numpy as jnp
    >>> params = {"w": jnp.ones(3), "latents": jnp.ones(4)}
    >>> dead_parameters(lambda p, x: jnp.sum(p["w"] * x + 0 * p["latents"].sum()), params, [jnp.arange(3.0)])
    Traceback (most recent call last):
    lapwing.check._report.CheckError: params['latents'] (4 entries) has no effect on the loss. Look at ...
    """
    random = np.random.default_rng(seed)
    chosen = parts(params, is_float, "params")
    needs_parameters(chosen)
    trained = np.split(
        trained_entries(chosen, params, trainable), np.cumsum([np.size(x) for x in chosen.leaves])[:-1]
    )
    value, gradient = _compiled(loss, chosen, batches)
    given = [parts(batch, is_array, "batch") for batch in batches] or [Parts((), (), lambda _: None)]
    alive = [np.zeros(np.size(leaf), bool) for leaf in chosen.leaves]
    shaken = [_shaken(leaf, random) for leaf in chosen.leaves]
    for leaves in (list(chosen.leaves), shaken):
        for batch in given:
            for so_far, slope in zip(alive, gradient(leaves, list(batch.leaves)), strict=True):
                so_far |= np.ravel(np.asarray(slope, np.float64) != 0)
    wrong = {}
    for place, path in enumerate(chosen.paths):
        if trained[place].any() and not (alive[place] & trained[place]).any() and path not in ignore:
            size = f"({np.size(chosen.leaves[place])} entries)"
            if _has_effect(value, list(chosen.leaves), place, given, random):
                wrong[path] = f"{path} {size} moves the loss, but its gradient is exactly zero: it is cut"
            else:
                wrong[path] = f"{path} {size} has no effect on the loss"
    for path in _dead_inputs(value, shaken, given, random):
        if path not in ignore:
            wrong[path] = f"{path} has no effect on the loss"
    if wrong:
        found(
            "dead_parameters",
            format_list(list(wrong.values())),
            "whether it is used at all, is multiplied by zero or masked, is overwritten before it is read, or stands "
            "behind a stop_gradient",
            list(wrong),
        )
    inputs = sum(path not in ignore for path in given[0].paths)
    idle = sum(int((mask & ~entries).sum()) for mask, entries in zip(trained, alive, strict=True))
    total = sum(int(mask.sum()) for mask in trained)
    return Report(
        "dead_parameters",
        f"every leaf of the parameters ({len(chosen.paths)}) and of the batch ({inputs}) has an effect; "
        f"{idle} of {total} entries had no gradient",
        {"leaves": len(chosen.paths), "entries": total, "idle_entries": idle, "batches": len(batches)},
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
        found(
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
        flags.any() for flags in moved(one, other)
    )


def _compiled(loss: Callable[..., Any], chosen: Parts, batches: Sequence[Any]) -> tuple[Any, Any]:
    rebuild = parts(batches[0], is_array).join if batches else None

    def of_leaves(leaves: list[Any], arrays: list[Any]) -> Any:
        batch = () if rebuild is None else (rebuild(arrays),)
        return scalar_of(loss(chosen.join(leaves), *batch))

    return jax.jit(of_leaves), jax.jit(jax.grad(of_leaves))


def _shaken(leaf: Any, random: np.random.Generator) -> Any:
    """Moved by a tenth of its size, or by a tenth where it is all zero; what is not finite stays."""
    array = np.array(leaf, np.float64)
    finite = np.isfinite(array)
    numbers = array[finite]
    size = float(np.sqrt(np.mean(numbers**2))) if numbers.size else 0.0
    array[finite] = numbers + 0.1 * (size or 1.0) * random.normal(size=numbers.shape)
    return jnp.asarray(array, leaf.dtype)


def _has_effect(value: Any, leaves: list[Any], place: int, given: list[Parts], random: Any) -> bool:
    for size in (1.0, 10.0):
        other = list(leaves)
        other[place] = leaves[place] + size * (_shaken(leaves[place], random) - leaves[place])
        if any(value(leaves, list(b.leaves)) != value(other, list(b.leaves)) for b in given):
            return True
    return False


def _dead_inputs(value: Any, leaves: list[Any], given: list[Parts], random: np.random.Generator) -> list[str]:
    idle = []
    for place, path in enumerate(given[0].paths):
        arrays = [np.asarray(batch.leaves[place]) for batch in given if is_drawable(batch.leaves[place])]
        # An array that holds one value everywhere says nothing about what another would do.
        if not arrays or np.unique(arrays[0]).size < 2:
            continue
        moves = False
        for batch in given:
            other = list(batch.leaves)
            other[place] = random.choice(np.ravel(other[place]), np.shape(other[place]))
            moves = moves or bool(value(leaves, list(batch.leaves)) != value(leaves, other))
        if not moves:
            idle.append(path)
    return idle
