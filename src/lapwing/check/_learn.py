"""Can it learn at all? The training step, on one batch again and again: a model that is wired correctly memorizes it.

The initial loss is compared with that of a uniform guess (see `_initial`), and the loss reached with that of a model
that ignores its inputs and predicts the frequencies of the labels, padding included.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree, Shaped

from lapwing.task import Task
from lapwing.train import FitConfig

from ._budget import Budget, Tell
from ._initial import check_initial_loss, other_units
from ._numbers import numbers
from ._partition import is_array, parameters_in, partition, scalar_of, trained_entries
from ._report import CheckError, Report, fail
from ._training import Training

_LEAST = 0.02  # The part by which a loss of unknown floor must fall.


def trivial_loss(targets: Shaped[ArrayLike, "..."]) -> tuple[float, str]:
    """The loss of a model that ignores its inputs, and a description of that model.

    For integers it is the cross-entropy of predicting frequencies, otherwise the mean square around the mean.

    >>> trivial_loss(np.array([0, 0, 0, 7]))[1]
    'predicting frequencies (the most frequent target is 0, 75%; is it padding?)'
    """
    flat = np.asarray(targets)
    if flat.dtype.kind in "iub":
        values, counts = np.unique(flat, return_counts=True)
        share = counts / counts.sum()
        most = int(np.argmax(counts))
        padding = "; is it padding?" if share[most] > 0.5 else ""
        model = (
            f"predicting frequencies (the most frequent target is {values[most]}, {share[most]:.0%}{padding})"
        )
        return float(-(share * np.log(share)).sum()), model
    return float(np.mean((flat - flat.mean(axis=0)) ** 2)), "always predicting the mean"


def can_learn(
    loss: Callable[..., Any],
    params: PyTree,
    *args: Any,
    targets: Shaped[ArrayLike, "..."] | None = None,
    classes: int | None = None,
    trainable: PyTree[bool] | None = None,
    fall: float = 0.5,
    floor: float = 0.0,
    steps: int = 300,
    rates: Sequence[float] = (3e-3, 3e-2, 3e-4),
    budget_s: float = 30.0,
    tell: Tell | None = None,
) -> Report:
    """`loss(params, *args)` must fall when Adam trains on one batch.

    **Arguments**

    - `targets`: the targets of the batch. The loss must fall below that of a model that ignores the inputs
      (`trivial_loss`).
    - `classes`: the number of classes. An initial loss that is not about log(classes), a uniform guess, is reported; it
      is an error if it is far below, if the loss is a sum, or if the scale of the weights puts it far above.
    - `trainable`: a tree like `params` of bools or boolean arrays.
    - `fall`: the fraction of the initial loss above `floor` by which it must fall.
    - `steps`, `rates`: the learning rates to try, for at most this many steps each.

    >>> import jax.numpy as jnp
    >>> x = jnp.linspace(-1, 1, 20)
    >>> print(can_learn(lambda w, x: jnp.mean((w * x - x) ** 2), jnp.zeros(()), x))
    can_learn: the loss of one batch falls from 0.368 to ... in ... steps at learning rate ...
    >>> can_learn(lambda w, x: jnp.mean((0 * w - x) ** 2), jnp.zeros(()), x, steps=20)
    Traceback (most recent call last):
    lapwing.check._report.CheckError: training on one batch does not reduce its loss enough: it was 0.368421 and ...
    """
    chosen, given = parameters_in(params), partition(args, is_array)
    task = Task(
        init=lambda key: list(map(jnp.asarray, chosen.leaves)),
        data=lambda key, step: list(given.leaves),
        loss=lambda leaves, arrays: (scalar_of(loss(chosen.combine(leaves), *given.combine(arrays))), {}),
        trainable=lambda leaves: trained_entries(chosen, params, trainable),
    )
    limits: dict[str, Any] = {
        "fall": fall,
        "floor": floor,
        "steps": steps,
        "budget_s": budget_s,
        "tell": tell,
    }
    return learn_one_batch(Training(task, FitConfig()), rates, targets, classes, **limits)


def learn_one_batch(
    training: Training,
    rates: Sequence[float],
    targets: Shaped[ArrayLike, "..."] | None,
    classes: int | None,
    *,
    fall: float,
    floor: float = 0.0,
    steps: int = 300,
    budget_s: float,
    tell: Tell | None,
) -> Report:
    """`can_learn` for a training step, whatever its optimizer. Penalties are trained on and not counted."""
    budget = Budget(budget_s)
    _, start = training.step_on_one_batch(training.state)
    unusual = check_initial_loss(training, start, classes, lambda: written_wrongly(training))
    baseline, guess = trivial_loss(targets) if targets is not None else (math.inf, "")
    goal = min(start - fall * (start - floor), baseline)
    best = (start, 0, rates[0])
    for number, rate in enumerate(rates):
        share = Budget(budget.left() / (len(rates) - number))
        state, done = training.state.with_controls({training.state.rate_name: jnp.float32(rate)}), 0
        while best[0] >= goal and done <= steps and (done == 0 or share.left() > 0):
            state, loss = training.step_on_one_batch(state)
            best = min(best, (loss, done, rate)) if math.isfinite(loss) else best
            done += 1
        if tell is not None:
            tell(f"can_learn: {best[0]:.6g} after {done} steps at learning rate {rate:g}, from {start:.6g}")
        if best[0] < goal:
            break
    reached, taken, rate = best
    below = f", below {baseline:.4g} of {guess}" if targets is not None else ""
    if reached >= goal:
        # A weighted sum, or one with the entropy of soft targets, has units and a floor of its own.
        below = other_units(training, classes) if reached < start - _LEAST * (start - floor) else ""
        if not below:
            _fail_stuck(start, reached, goal, steps, rates, baseline, guess, written_wrongly(training))
    return Report(
        "can_learn",
        f"the loss of one batch falls from {start:.3g} to {reached:.3g} in {taken} steps at learning rate {rate:g}"
        f"{below}{unusual and '; '}{unusual}",
        {"start": start, "reached": reached, "steps": taken, "learning_rate": rate},
    )


def _fail_stuck(
    start: float,
    reached: float,
    goal: float,
    steps: int,
    rates: Sequence[float],
    baseline: float,
    guess: str,
    cause: str | None,
) -> None:
    why = f"{guess} gives {baseline:.6g}" if goal == baseline else f"it should be below {goal:.6g}"
    what = (
        f"training on one batch does not reduce its loss enough: it was {start:.6g} and is {reached:.6g} at best after "
        f"{steps} steps at learning rates {', '.join(f'{rate:g}' for rate in rates)}, where {why}"
    )
    if cause is not None:
        raise CheckError("can_learn", f"{what}; its program shows why: {cause}")
    fail(
        "can_learn",
        what,
        "whether inputs and targets belong together, whether the gradient reaches the parameters (check.gradients, "
        "check.dead_parameters), swapped axes (check.batch_independence), and the update: the sign and scale of the "
        "optimizer (optax.adam, not optax.scale_by_adam()), the mask, clip, and the weights of penalties",
    )


def written_wrongly(training: Training) -> str | None:
    """What check.numbers finds in the program of the loss, if anything."""
    try:
        numbers(training.one_loss, training.params, training.batch(), batch_axis=training.task.batch_axis)
    except CheckError as error:
        return str(error)
    except Exception:
        # A loss that cannot be read in this way is described without it.
        return None
    return None
