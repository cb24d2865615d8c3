"""Can it learn at all? One batch, over and over, by Adam at a few rates: a model that is wired up learns it by heart.

The loss at the start is compared with that of a uniform guess, and what is reached with what somebody gets who has not
looked at the inputs: the frequencies of the labels, padding counted.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._budget import Budget, Tell
from ._line import trained_entries
from ._parts import is_array, is_float, needs_parameters, parts, scalar_of
from ._report import CheckInputError, Report, found

_CHUNK = 20


def trivial_loss(targets: Any) -> tuple[float, str]:
    """The loss of who does not look at the inputs, and how that is done.

    Whole numbers: the cross-entropy of guessing by frequency. Others: the mean square around the mean.

    >>> trivial_loss(np.array([0, 0, 0, 7]))[1]
    'guessing by frequency (the most frequent target is 0, 75%; is it padding?)'
    """
    flat = np.asarray(targets)
    if flat.dtype.kind in "iub":
        values, counts = np.unique(flat, return_counts=True)
        share = counts / counts.sum()
        most = int(np.argmax(counts))
        padding = "; is it padding?" if share[most] > 0.5 else ""
        words = (
            f"guessing by frequency (the most frequent target is {values[most]}, {share[most]:.0%}{padding})"
        )
        return float(-(share * np.log(share)).sum()), words
    return float(np.mean((flat - flat.mean(axis=0)) ** 2)), "always saying the mean"


def can_learn(
    loss: Callable[..., Any],
    params: Any,
    *args: Any,
    targets: Any = None,
    classes: int | None = None,
    trainable: Any = None,
    fall: float = 0.5,
    floor: float = 0.0,
    steps: int = 300,
    rates: Sequence[float] = (3e-3, 3e-2, 3e-4),
    budget_s: float = 30.0,
    tell: Tell | None = None,
) -> Report:
    """`loss(params, *args)` must fall when one batch is learned by heart: by the share `fall` of what is above `floor`.

    With `classes`, the loss at the start must be about log(classes), a uniform guess. With `targets` of the batch, it
    must fall below that of guessing without the inputs (`trivial_loss`).

    >>> import jax.numpy as jnp
    >>> x = jnp.linspace(-1, 1, 20)
    >>> print(can_learn(lambda w, x: jnp.mean((w * x - x) ** 2), jnp.zeros(()), x))
    can_learn: the loss of one batch falls from 0.368 to ... in ... steps at learning rate ...
    >>> can_learn(lambda w, x: jnp.mean((0 * w - x) ** 2), jnp.zeros(()), x)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: one batch cannot be learned by heart: its loss was 0.368421 and is 0.368421 ...
    """
    budget = Budget(budget_s)
    start, advance = _learner(loss, params, args, trainable)
    if not math.isfinite(start):
        found(
            "can_learn",
            f"the loss at the start is {start}",
            "the size of the first parameters and of the inputs",
        )
    if classes is not None:
        _check_start(start, classes)
    baseline, guess = trivial_loss(targets) if targets is not None else (math.inf, "")
    goal = min(start - fall * (start - floor), baseline)
    best = (start, 0, rates[0])
    for turn, rate in enumerate(rates):
        share = Budget(budget.left() / (len(rates) - turn))
        done = 0
        for now in advance(rate):
            done += _CHUNK
            best = min(best, (now, done, rate)) if math.isfinite(now) else best
            if best[0] < goal or done >= steps or share.left() == 0:
                break
        if tell is not None:
            tell(f"can_learn: {best[0]:.6g} after {done} steps at learning rate {rate:g}, from {start:.6g}")
        if best[0] < goal:
            break
    reached, taken, rate = best
    if reached >= goal:
        _tell_stuck(start, reached, goal, steps, rates, baseline, guess)
    below = f", below {baseline:.4g} of {guess}" if targets is not None else ""
    return Report(
        "can_learn",
        f"the loss of one batch falls from {start:.3g} to {reached:.3g} in {taken} steps at learning rate {rate:g}"
        f"{below}",
        {"start": start, "reached": reached, "steps": taken, "learning_rate": rate},
    )


def _check_start(start: float, classes: int) -> None:
    if classes < 2:
        raise CheckInputError(f"expected two classes or more, found classes={classes}")
    uniform = math.log(classes)
    # A usual start has logits of size 1, which cost about a half more than a uniform guess.
    if not 0.5 * uniform <= start <= uniform + max(1.0, 0.5 * uniform):
        much = (
            "a guess that is sure of itself and wrong"
            if start > uniform
            else "an answer that is already known"
        )
        found(
            "can_learn",
            f"the loss at the start is {start:.6g}, but a uniform guess among {classes} classes has log({classes}) = "
            f"{uniform:.4g}: that is {much}",
            "the size of the last layer's first weights, whether the loss is a mean over examples (and over tokens), "
            "padding that counts, and targets among the inputs",
        )


def _learner(
    loss: Callable[..., Any], params: Any, args: tuple[Any, ...], trainable: Any
) -> tuple[float, Any]:
    """The loss at the start, and a function that gives the loss after each chunk of steps at a rate."""
    chosen, given = parts(params, is_float, "params"), parts(args, is_array)
    needs_parameters(chosen)
    cuts = np.cumsum([np.size(leaf) for leaf in chosen.leaves])[:-1]
    masks = [
        mask.reshape(np.shape(leaf))
        for mask, leaf in zip(
            np.split(trained_entries(chosen, params, trainable), cuts), chosen.leaves, strict=True
        )
    ]

    def of_leaves(leaves: list[Any], arrays: list[Any]) -> Any:
        return scalar_of(loss(chosen.join(leaves), *given.join(arrays)))

    def adam(state: Any, rate: Any, arrays: list[Any]) -> Any:
        leaves, first, second, step = state
        slopes = jax.grad(of_leaves)(leaves, arrays)
        slopes = [jnp.where(mask, slope, 0) for mask, slope in zip(masks, slopes, strict=True)]
        first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, slopes, strict=True)]
        up, across = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
        leaves = [
            (x - rate * (m / up) / (jnp.sqrt(v / across) + 1e-8)).astype(x.dtype)
            for x, m, v in zip(leaves, first, second, strict=True)
        ]
        return leaves, first, second, step + 1

    @jax.jit
    def chunk(state: Any, rate: Any, arrays: list[Any]) -> Any:
        state = jax.lax.fori_loop(0, _CHUNK, lambda _, each: adam(each, rate, arrays), state)
        return state, of_leaves(state[0], arrays)

    arrays = list(given.leaves)

    def advance(rate: float) -> Any:
        leaves = [jnp.asarray(leaf) for leaf in chosen.leaves]
        zeros = [jnp.zeros_like(leaf) for leaf in leaves]
        state = (leaves, zeros, zeros, jnp.zeros(()))
        while True:
            state, now = chunk(state, jnp.float32(rate), arrays)
            yield float(now)

    return float(jax.jit(of_leaves)(list(chosen.leaves), arrays)), advance


def _tell_stuck(
    start: float, reached: float, goal: float, steps: int, rates: Sequence[float], baseline: float, guess: str
) -> None:
    why = f"it should come below {goal:.6g}"
    if goal == baseline:
        why = f"{guess} gives {baseline:.6g}"
    found(
        "can_learn",
        f"one batch cannot be learned by heart: its loss was {start:.6g} and is {reached:.6g} at best after {steps} "
        f"steps at learning rates {', '.join(f'{rate:g}' for rate in rates)}, where {why}",
        "whether inputs and targets belong together, whether the gradient reaches the parameters (check.gradients, "
        "check.dead_parameters), and axes that are swapped (check.batch_independence)",
    )
