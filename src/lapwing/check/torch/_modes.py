"""Training and evaluation mode: dropout or batch statistics that are on in evaluation, or off in training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lapwing.check._influence import changes
from lapwing.check._report import CheckError, Report, fail

from ._influence import batch_independence
from ._module import called_with_arrays, check_module, import_torch, to_arrays, untouched


def modes(
    model: Any,
    *inputs: Any,
    batch_axis: Any = 0,
    out_axis: Any = 0,
    train_step: Callable[[], Any] | None = None,
    evaluate: Callable[[], Any] | None = None,
    seed: int = 0,
) -> Report:
    """In evaluation mode a module must be deterministic, independent of the batch, and unchanged by a call; in training
    mode its running statistics must move.

    **Arguments**

    - `model(*inputs)`: the module, and inputs that differ; `batch_axis`, `out_axis`: where the examples are.
    - `train_step()`, `evaluate()`: what the program calls for one step and for one evaluation. In a step all layers
      that have a mode must be in training mode, in an evaluation none, and after it training must go on in training
      mode. Both may change the model: they are the program's own.

    **Raises** `CheckError` that names the layer.
    """
    check_module(model)
    with untouched(model, seed):
        model.eval()
        _check_deterministic(model, inputs, seed)
        _check_unchanged(model, inputs)
        _check_independent(model, inputs, batch_axis, out_axis, seed)
        _check_moving(model, inputs)
    called = [name for name, each in (("train_step", train_step), ("evaluate", evaluate)) if each is not None]
    if train_step is not None:
        _check_modes(model, train_step, True)
    if evaluate is not None:
        was_training = model.training
        _check_modes(model, evaluate, False)
        _check_after(model, train_step, was_training)
    layers = sum(map(_has_mode, model.modules()))
    more = (
        f"; {' and '.join(called)} {'set' if len(called) > 1 else 'sets'} it as it should be"
        if called
        else ""
    )
    return Report(
        "modes",
        f"in evaluation mode the outputs are the same in every call and for every batch ({layers} layers have a mode)"
        f"{more}",
        {"layers": layers},
    )


def _check_deterministic(model: Any, inputs: Any, seed: int) -> None:
    arrays = [to_arrays(each) for each in inputs]
    one, other = (called_with_arrays(model, each)(*arrays) for each in (seed, seed + 1))
    share = max(float(flags.mean()) for flags in changes(one, other))
    if share:
        fail(
            "modes",
            f"in evaluation mode two calls with the same inputs differ ({share:.0%} of the outputs): something is "
            "still random",
            "dropout that is called as a function without training=self.training, and noise that does not ask for "
            "self.training",
        )


def _buffers(model: Any) -> dict[str, np.ndarray]:
    return {name: to_arrays(each).copy() for name, each in model.named_buffers()}


def _after_call(model: Any, inputs: Any) -> list[str]:
    """The buffers that a call changes."""
    torch, before = import_torch(), _buffers(model)
    with torch.no_grad():
        model(*inputs)
    after = _buffers(model)
    return [name for name, array in before.items() if not np.array_equal(array, after[name], equal_nan=True)]


def _check_unchanged(model: Any, inputs: Any) -> None:
    with untouched(model):
        changed = _after_call(model, inputs)
    if changed:
        fail(
            "modes",
            f"a call in evaluation mode changes model.{changed[0]}",
            "statistics that are updated without asking for self.training, and layers whose mode is set by hand",
            [f"model.{name}" for name in changed],
        )


def _check_independent(model: Any, inputs: Any, batch_axis: Any, out_axis: Any, seed: int) -> None:
    try:
        batch_independence(model, *inputs, batch_axis=batch_axis, out_axis=out_axis, examples=3, seed=seed)
    except CheckError as error:
        what, _, _ = str(error).partition(". Look at ")
        fail(
            "modes",
            f"in evaluation mode {what}",
            "batch statistics that are on in evaluation (track_running_stats=False, a norm over the batch)",
            error.where,
        )


def _check_moving(model: Any, inputs: Any) -> None:
    """Running statistics must change in training mode, those of layers that are called."""
    torch = import_torch()
    norms = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    }
    if not norms:
        return
    called: set[str] = set()
    hooks = [
        module.register_forward_hook(lambda *_, name=name: called.add(name)) for name, module in norms.items()
    ]
    try:
        with untouched(model):
            model.train()
            changed = _after_call(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    still = [name for name in norms if name in called and f"{name}.running_mean" not in changed]
    if still:
        fail(
            "modes",
            f"a call in training mode does not change the running statistics of model.{still[0]}",
            "its momentum, a train() that is overwritten, and layers that are frozen by hand",
            [f"model.{name}" for name in still],
        )


def _has_mode(module: Any) -> bool:
    torch = import_torch()
    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm)
    return isinstance(module, kinds)


def _check_modes(model: Any, call: Callable[[], Any], training: bool) -> None:
    """All layers with a mode must have this one while `call` runs the model."""
    wrong: dict[str, None] = {}

    def look(name: str, module: Any) -> None:
        if module.training != training:
            wrong[f"model.{name}"] = None

    hooks = [
        module.register_forward_pre_hook(lambda module, _, name=name: look(name, module))
        for name, module in model.named_modules()
        if _has_mode(module)
    ]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    if not wrong:
        return
    where, expected = next(iter(wrong)), "train" if training else "eval"
    found = "evaluation" if training else "training"
    fail(
        "modes",
        f"{where} is in {found} mode in {'a training step' if training else 'an evaluation'}",
        f"the call of model.{expected}(), which must come before it, also after the other mode was on",
        list(wrong),
    )


def _check_after(model: Any, train_step: Callable[[], Any] | None, was_training: bool) -> None:
    """After an evaluation the program must train as before: its step sets the mode, or the evaluation restores it."""
    if train_step is not None:
        _check_modes(model, train_step, True)
    elif was_training and not model.training:
        fail(
            "modes",
            "the evaluation leaves the model in evaluation mode",
            "a model.train() after the evaluation, or at the start of every step",
        )
