"""Weights that a module uses and does not know of: in a plain list or dict, or a tensor that is no parameter."""

from collections.abc import Iterator, Mapping
from typing import Any

from lapwing.check._report import fail
from lapwing.core import format_list

from ._module import import_torch

_OWN = ("_parameters", "_buffers", "_modules")


def check_unregistered(model: Any) -> None:
    """Raises if a part of the model that requires a gradient is not among its parameters: no optimizer that is made of
    `model.parameters()` trains it, and no state dict has it. A part that is hidden on purpose, such as a teacher in a
    list, requires none."""
    known = {id(each) for each in model.parameters()}
    found: dict[str, int] = {}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in _OWN:
                continue
            path = ".".join(filter(None, ["model", name, attribute]))
            for where, tensor in _tensors(path, value):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in known:
                    found.setdefault(where, tensor.numel())
    if found:
        named = format_list([f"{where} ({size} entries)" for where, size in found.items()], 4)
        fail(
            "structure",
            f"{named} requires a gradient, and is not among the parameters of the model: an optimizer that is made of "
            "model.parameters() does not train it",
            "how it is held: layers belong in a torch.nn.ModuleList or ModuleDict, tensors in a torch.nn.Parameter; "
            "what should stay as it is, has requires_grad_(False)",
            list(found),
        )


def _tensors(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors in a plain container, by path, and those of the modules in it."""
    torch = import_torch()
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, torch.nn.Module):
        yield from ((f"{path}.{name}", each) for name, each in value.named_parameters())
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors(f"{path}[{key!r}]", each)
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from _tensors(f"{path}[{place}]", each)
