"""Examples that influence each other, and outputs that depend on later inputs: the checks for JAX, on a module."""

from collections.abc import Callable
from typing import Any, NoReturn

from lapwing import check
from lapwing.check._report import CheckError, Report

from ._module import called_with_arrays, import_torch, to_arrays


def batch_independence(
    model: Callable[..., Any],
    *inputs: Any,
    batch_axis: Any = 0,
    out_axis: Any = 0,
    examples: int = 8,
    seed: int = 0,
) -> Report:
    """The output of an example must not depend on the other examples of its batch.

    **Arguments**

    - `model(*inputs)`: a module, in the mode that it is in, or a function of tensors; it returns something for each
      example. Random numbers are the same in every call.
    - `batch_axis`, `out_axis`: the batch axis of inputs and outputs, an int or a prefix tree of ints.
    - `examples`: the number of examples to replace, drawn at random.

    **Raises** `CheckError` if an example changes with another one.
    """
    call = called_with_arrays(model, seed)
    try:
        return check.batch_independence(
            call,
            *map(to_arrays, inputs),
            batch_axis=batch_axis,
            out_axis=out_axis,
            examples=examples,
            seed=seed,
        )
    except CheckError as error:
        _name_batch_norm(model, error)


def _name_batch_norm(model: Any, error: CheckError) -> NoReturn:
    """The same error; if the module has batch statistics that are on, with their place."""
    torch = import_torch()
    norms = torch.nn.modules.batchnorm._BatchNorm
    found = [
        name
        for name, module in (model.named_modules() if isinstance(model, torch.nn.Module) else ())
        if isinstance(module, norms) and (module.training or not module.track_running_stats)
    ]
    if not found:
        raise error
    what = str(error).split(". Look at ")[0].split(": ")[0]
    raise CheckError(
        error.check,
        f"{what}: the model has batch statistics at model.{found[0]}, which make every example depend on all. Look at "
        "whether that is intended; with running statistics (model.eval()) the examples are independent.",
        error.where,
    ) from None


def causality(
    model: Callable[..., Any],
    *inputs: Any,
    time_axis: Any = 1,
    out_axis: Any = None,
    lag: int = 0,
    targets: Any = None,
    cuts: int = 4,
    seed: int = 0,
) -> Report:
    """The output of `model(*inputs)` at time t must not depend on inputs after t − lag.

    **Arguments**

    - `time_axis`, `out_axis`: the time axis of the inputs, and of the outputs if it is another one.
    - `lag`: 1 for a model that predicts an input from those before it.
    - `targets`: the model is called as `model(*inputs, targets)`, and its outputs must not depend on the targets.
    - `cuts`: the number of times from which on the inputs are replaced.

    **Raises** `CheckError` if an output looks ahead.
    """
    call = called_with_arrays(model, seed)
    given = None if targets is None else to_arrays(targets)
    return check.causality(
        call,
        *map(to_arrays, inputs),
        time_axis=time_axis,
        out_axis=out_axis,
        lag=lag,
        targets=given,
        cuts=cuts,
        seed=seed,
    )
