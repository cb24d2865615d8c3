"""The thinker's network and loss in PyTorch, as one writes it there: a rival of benchmarks/thinking_speed.py.

A Python loop over convolutions of the state and the embedded input; thinking before is under `torch.no_grad`. It runs
on a GPU where PyTorch finds one. Its weights are those of a `Looped`, so that losses and gradients can be compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from lapwing.models import Looped

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# On a GPU jax multiplies in TF32 too.
torch.set_float32_matmul_precision("high")


def weights_of(model: Looped) -> dict[str, np.ndarray]:
    """The weights, or their gradients, in PyTorch's layout: channels first."""
    block: Any = model.block
    width = model.widen.shape[0]
    axes = 1 if block.of_state.shape[0] == 3 * width else 2

    def kernel(matrix: Any) -> np.ndarray:
        square = np.asarray(matrix).reshape(*[3] * axes, -1, matrix.shape[1])
        return np.ascontiguousarray(np.moveaxis(square, (-1, -2), (0, 1)))

    return {
        **{f"embedding{at}": np.asarray(table) for at, table in enumerate(model.embeddings)},
        "first": np.concatenate([kernel(block.of_state), kernel(block.of_input)], axis=1),
        "bias": np.asarray(block.bias),
        "second": kernel(block.narrow),
        "second_bias": np.asarray(block.narrow_bias),
        "gain": np.asarray(model.norm.gain),
        "widen": np.asarray(model.widen).T,
        "head": np.asarray(model.head).T,
    }


def loss_of(
    weights: dict[str, torch.Tensor], inputs: Any, targets: Any, before: int, steps: int, counted: int
) -> torch.Tensor:
    """The mean cross-entropy of the last of the steps with a gradient."""
    axes = inputs.ndim - 2
    convolve = functional.conv1d if axes == 1 else functional.conv2d
    tables = [weights[f"embedding{at}"] for at in range(inputs.shape[-1])]
    embedded = [functional.embedding(inputs[..., at], table) for at, table in enumerate(tables)]
    x = torch.stack(embedded).sum(dim=0).movedim(-1, 1)
    gain = weights["gain"].reshape(-1, *[1] * axes)

    def step(state: torch.Tensor) -> torch.Tensor:
        seen = torch.cat([state, x], dim=1)
        hidden = functional.gelu(
            convolve(seen, weights["first"], weights["bias"], padding=1), approximate="tanh"
        )
        state = state + convolve(hidden, weights["second"], weights["second_bias"], padding=1)
        return state * torch.rsqrt(state.square().mean(dim=1, keepdim=True) + 1e-6) * gain

    state = torch.zeros_like(x)
    with torch.no_grad():
        for _ in range(before):
            state = step(state)
    states = []
    for _ in range(steps):
        state = step(state)
        states.append(state)
    last = torch.stack(states[-counted:]).movedim(2, -1)
    hidden = functional.gelu(functional.linear(last, weights["widen"]), approximate="tanh")
    logits = functional.linear(hidden, weights["head"])
    every = targets.expand(len(last), *targets.shape)
    return functional.cross_entropy(logits.flatten(0, -2), every.flatten(), ignore_index=-1)


def rival(
    model: Looped, batch: Any, steps: int, counted: int
) -> Callable[[], tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """A function that computes the loss and its gradient, and waits for them."""
    weights = {
        name: torch.tensor(value, device=DEVICE, requires_grad=True)
        for name, value in weights_of(model).items()
    }
    inputs, targets = (
        torch.tensor(np.asarray(each), dtype=torch.long, device=DEVICE) for each in batch.instances
    )
    before = int(batch.before)

    def run() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = loss_of(weights, inputs, targets, before, steps, counted)
        found = torch.autograd.grad(loss, list(weights.values()))
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return loss.detach(), dict(zip(weights, found, strict=True))

    return run
