"""What should have the same leaves: the model, its optimizer, a checkpoint."""

from typing import Any

from lapwing import check
from lapwing.check._report import Report, fail
from lapwing.core import format_list

from ._module import check_module, import_torch
from ._unregistered import check_unregistered


def structure(model: Any, *, optimizer: Any = None, **trees: Any) -> Report:
    """The optimizer must have every trained parameter of the model once and no other, and every tree its leaves.

    Layers in a plain list, and tensors that require a gradient and are no `torch.nn.Parameter`, are not the model's.

    **Arguments**

    - `optimizer`: its parameters must be those of the model, the very same tensors: a layer that was replaced, or a
      parameter that was made again, is otherwise never trained. Its state must have their shapes.
    - `trees`: state dicts by name, such as `checkpoint=torch.load(...)["model"]`, with the leaves of the model's.

    **Raises** `CheckError` that names the parameter.
    """
    check_unregistered(check_module(model))
    names = {id(each): f"model.{name}" for name, each in model.named_parameters()}
    trained = {id(each): each for each in model.parameters() if each.requires_grad}
    if optimizer is not None:
        _check_optimizer(names, trained, optimizer)
    if trees:
        own = dict(model.state_dict())
        check.structure(model=own, **{name: dict(tree) for name, tree in trees.items()})
    having = [*(["the optimizer"] if optimizer is not None else []), *trees]
    has = "have" if len(having) > 1 else "has"
    said = f"{' and '.join(having)} {has} the leaves of the model" if having else "the model"
    return Report("structure", f"{said} ({len(names)})", {"leaves": len(names), "trained": len(trained)})


def _check_optimizer(names: dict[int, str], trained: dict[int, Any], optimizer: Any) -> None:
    torch = import_torch()
    held = [each for group in optimizer.param_groups for each in group["params"]]
    known = [id(each) for each in held]
    if missing := [names[each] for each in trained if each not in known]:
        fail(
            "structure",
            f"the optimizer lacks {format_list(missing)}, which require a gradient: they are never updated",
            "the order: make the optimizer after the last change of the model (a new layer, a new head, unfreezing), "
            "and the lists of its parameter groups",
            missing,
        )
    if strange := [each for each in held if id(each) not in names]:
        shapes = format_list([f"one of shape {tuple(each.shape)}" for each in strange])
        fail(
            "structure",
            f"the optimizer has {len(strange)} parameters that the model does not have ({shapes}): they are updated in "
            "vain",
            "the order: make the optimizer after the last change of the model, and from this model, not from another",
        )
    if twice := [names[each] for each in dict.fromkeys(known) if known.count(each) > 1]:
        fail(
            "structure",
            f"the optimizer has {format_list(twice)} twice: each step updates it twice",
            "the parameter groups, and parameters that two layers share",
            twice,
        )
    for each in held:
        for name, value in optimizer.state.get(each, {}).items():
            is_of_entries = isinstance(value, torch.Tensor) and value.dim() > 0
            if (
                is_of_entries
                and name.startswith(("exp_", "momentum", "square", "max_exp"))
                and value.shape != each.shape
            ):
                where = names[id(each)]
                fail(
                    "structure",
                    f"the optimizer's {name} of {where} has shape {tuple(value.shape)}, but the parameter has "
                    f"{tuple(each.shape)}",
                    "the state that was loaded: of another model, or with its parameters in another order",
                    [where],
                )
