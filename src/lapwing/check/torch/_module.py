"""PyTorch itself, imported when it is needed, and what the checks do with a module: call it without a trace."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lapwing.check._report import CheckInputError


def import_torch() -> Any:
    """The module `torch`; a sentence where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise CheckInputError(
            "the checks in lapwing.check.torch need PyTorch, which is not installed here; install it with "
            "`pip install torch`, or use lapwing.check for JAX"
        ) from None


def check_module(model: Any) -> Any:
    """The module, or an error if it is something else."""
    torch = import_torch()
    if not isinstance(model, torch.nn.Module):
        raise CheckInputError(
            f"expected a torch.nn.Module, found a {type(model).__name__}; give the model itself"
        )
    lazy = [name for name, each in model.named_parameters() if torch.nn.parameter.is_lazy(each)]
    if lazy:
        raise CheckInputError(
            f"model.{lazy[0]} has no shape yet: the module is lazy; call it once with a batch before it is checked"
        )
    return model


@contextlib.contextmanager
def untouched(model: Any, seed: int = 0) -> Iterator[None]:
    """What happens in here draws its random numbers from `seed`; afterwards the module is as it was before: buffers,
    gradients, modes, and the random generator."""
    torch = import_torch()
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [(module, module.training) for module in modules]
    buffers = [
        (buffer, buffer.detach().clone()) for module in modules for buffer in module.buffers(recurse=False)
    ]
    gradients = [(each, each.grad) for module in modules for each in module.parameters(recurse=False)]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with torch.random.fork_rng(enabled=True):
            torch.manual_seed(seed)
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def called_with_arrays(model: Any, seed: int = 0) -> Callable[..., Any]:
    """The model as a function of trees of numpy arrays, without gradients. Every call draws the same random numbers, so
    that dropout drops the same entries."""
    torch = import_torch()

    def call(*inputs: Any) -> Any:
        tensors = [to_tensors(each) for each in inputs]
        with untouched(model, seed), torch.no_grad():
            return to_arrays(model(*tensors))

    return call


def to_arrays(tree: Any) -> Any:
    """Tensors as numpy arrays, in dicts and lists of the same shape; what is not an array is left out."""
    torch = import_torch()
    if isinstance(tree, torch.Tensor):
        tensor = tree.detach().cpu()
        # numpy has no bfloat16; float32 holds it.
        return np.asarray(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)
    if isinstance(tree, Mapping):
        return {str(name): to_arrays(each) for name, each in tree.items() if _holds_tensors(each)}
    if isinstance(tree, list | tuple):
        return [to_arrays(each) for each in tree if _holds_tensors(each)]
    return np.asarray(tree)


def _holds_tensors(tree: Any) -> bool:
    torch = import_torch()
    return isinstance(tree, torch.Tensor | Mapping | list | tuple | np.ndarray)


def to_tensors(tree: Any) -> Any:
    """The inverse, on the device of the default."""
    torch = import_torch()
    if isinstance(tree, Mapping):
        return {name: to_tensors(each) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [to_tensors(each) for each in tree]
    return torch.as_tensor(np.array(tree))


def in_float64(tree: Any) -> Any:
    """A copy of tensors, with those of floats in float64."""
    torch = import_torch()
    if isinstance(tree, torch.Tensor):
        return tree.detach().double() if tree.is_floating_point() else tree
    if isinstance(tree, Mapping):
        return {name: in_float64(each) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(in_float64(each) for each in tree) if type(tree) in (list, tuple) else tree
    return tree


def trained(model: Any) -> dict[str, Any]:
    """The parameters that are trained, by name; an error if there are none."""
    found = {f"model.{name}": each for name, each in model.named_parameters() if each.requires_grad}
    if not found:
        raise CheckInputError(
            "the module has no parameter that requires a gradient; give the model that is trained"
        )
    return found


def scalar(loss: Any) -> Any:
    """The loss as a tensor, or an error: it should be one number."""
    torch = import_torch()
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        found = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
        raise CheckInputError(f"the loss should be a tensor of one number, but is {found}; take its mean")
    return loss.reshape(())
