"""Parameters and inputs without an effect on the loss."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lapwing.check._report import CheckInputError, Report, fail
from lapwing.core import format_list

from ._module import check_module, import_torch, scalar, to_arrays, to_tensors, trained, untouched


def dead_parameters(
    loss: Callable[..., Any], model: Any, batches: Sequence[Any], *, ignore: Sequence[str] = (), seed: int = 0
) -> Report:
    """Every trained parameter, and every array of the batch, must have an effect on `loss(model, batch)`.

    **Arguments**

    - `batches`: several batches of tensors.
    - `ignore`: names that need no effect, written as in the message.

    **Raises** `CheckError` that says which have none, and which have an effect but no gradient.
    """
    if not batches:
        raise CheckInputError("expected one batch or more, found none; give those of a training loop")
    random = np.random.default_rng(seed)
    model = copy.deepcopy(check_module(model))
    parameters = trained(model)
    alive = {name: np.zeros(tuple(each.shape), bool) for name, each in parameters.items()}
    start = {name: each.detach().clone() for name, each in parameters.items()}
    for factor in (0.0, 1.0):
        _set(parameters, {name: _perturbed(each, random, factor) for name, each in start.items()})
        for batch in batches:
            for name, slope in _slopes(loss, model, parameters, batch, seed).items():
                alive[name] |= slope != 0
    _set(parameters, start)
    wrong = {}
    for name, each in start.items():
        if not alive[name].any() and name not in ignore:
            size = f"({each.numel()} entries)"
            if _has_effect(loss, model, parameters, name, batches, random, seed):
                wrong[name] = f"{name} {size} changes the loss, but its gradient is exactly zero: it is cut"
            else:
                wrong[name] = f"{name} {size} has no effect on the loss"
    for path in _dead_inputs(loss, model, batches, random, seed):
        if path not in ignore:
            wrong[path] = f"{path} has no effect on the loss"
    if wrong:
        fail(
            "dead_parameters",
            format_list(list(wrong.values())),
            "whether it is used at all, is multiplied by zero or masked, is overwritten before it is read, or is only "
            "used behind a detach()",
            list(wrong),
        )
    idle, total = (sum(int(f(each)) for each in alive.values()) for f in (lambda a: (~a).sum(), np.size))
    return Report(
        "dead_parameters",
        f"every leaf of the parameters ({len(alive)}) and of the batch ({len(_leaves(batches[0]))}) has an effect; "
        f"{idle} of {total} entries had no gradient",
        {"leaves": len(alive), "entries": total, "idle_entries": idle, "batches": len(batches)},
    )


def _slopes(
    loss: Callable[..., Any], model: Any, parameters: Any, batch: Any, seed: int
) -> dict[str, np.ndarray]:
    torch = import_torch()
    with untouched(model, seed), torch.enable_grad():
        value = scalar(loss(model, batch))
        if not value.requires_grad:
            return {name: np.zeros(tuple(each.shape)) for name, each in parameters.items()}
        found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return {
        name: np.zeros(tuple(each.shape)) if slope is None else to_arrays(slope)
        for (name, each), slope in zip(parameters.items(), found, strict=True)
    }


def _value(loss: Callable[..., Any], model: Any, batch: Any, seed: int) -> float:
    torch = import_torch()
    with untouched(model, seed), torch.enable_grad():
        return float(scalar(loss(model, batch)).detach())


def _set(parameters: dict[str, Any], values: dict[str, Any]) -> None:
    torch = import_torch()
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value)


def _perturbed(tensor: Any, random: np.random.Generator, factor: float) -> Any:
    """With noise of a tenth of its size, times `factor`."""
    torch = import_torch()
    size = float(tensor.double().pow(2).mean().sqrt()) if tensor.numel() else 0.0
    noise = torch.as_tensor(random.normal(size=tuple(tensor.shape)))
    return (tensor.double() + factor * 0.1 * (size or 1.0) * noise).to(tensor.dtype)


def _has_effect(
    loss: Any, model: Any, parameters: Any, name: str, batches: Any, random: Any, seed: int
) -> bool:
    before = parameters[name].detach().clone()
    known = [_value(loss, model, batch, seed) for batch in batches]
    found = False
    for factor in (1.0, 10.0):
        _set(parameters, {name: _perturbed(before, random, factor)})
        found = found or any(
            _value(loss, model, b, seed) != value for b, value in zip(batches, known, strict=True)
        )
    _set(parameters, {name: before})
    return found


def _dead_inputs(
    loss: Any, model: Any, batches: Sequence[Any], random: np.random.Generator, seed: int
) -> list[str]:
    """The arrays of the batch that can be drawn again without a change of the loss."""
    idle = []
    for path in _leaves(batches[0]):
        arrays = [to_arrays(_leaves(batch)[path]) for batch in batches]
        if np.unique(arrays[0]).size < 2:
            continue  # A constant array has no other value to draw.
        has_effect = False
        for batch, array in zip(batches, arrays, strict=True):
            drawn = to_tensors(random.choice(array.ravel(), array.shape))
            other = _replaced(batch, path, drawn)
            has_effect = has_effect or _value(loss, model, batch, seed) != _value(loss, model, other, seed)
        if not has_effect:
            idle.append(path)
    return idle


def _leaves(tree: Any, path: str = "batch") -> dict[str, Any]:
    torch = import_torch()
    if isinstance(tree, torch.Tensor):
        return {path: tree}
    pairs = (
        tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    )
    return {name: leaf for key, each in pairs for name, leaf in _leaves(each, f"{path}[{key!r}]").items()}


def _replaced(tree: Any, path: str, new: Any, here: str = "batch") -> Any:
    if here == path:
        return new.to(tree.dtype)
    if isinstance(tree, dict):
        return {key: _replaced(each, path, new, f"{here}[{key!r}]") for key, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [_replaced(each, path, new, f"{here}[{at!r}]") for at, each in enumerate(tree)]
    return tree
