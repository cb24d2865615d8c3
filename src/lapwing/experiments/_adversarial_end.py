"""The closing words of an adversarial training: its robustness, or that it has overfitted."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lapwing.journal import Run
from lapwing.task import Callback, CallbackEvent

OVERFIT = (
    0.4  # A larger gap between the accuracies under one step and under many is catastrophic overfitting.
)


class Closing(Callback):
    """Summarizes the evaluations at the end, whose attack has this many steps."""

    def __init__(self, steps: int):
        self._steps = steps

    def on_end(self, event: CallbackEvent) -> str:
        evaluation, run = event.result.evaluation, event.run
        if not evaluation:
            return ""
        history = Run.open(run.folder).columns() if run else {}
        said = verdict(evaluation, history, self._steps)
        if run and is_overfitted(evaluation):
            run.event("catastrophic overfitting", said)
        return said


def is_overfitted(evaluation: Mapping[str, float]) -> bool:
    """Whether an evaluation shows a network that is robust against one step only.

    >>> is_overfitted({"eval_overfit": 0.9}), is_overfitted({"eval_overfit": 0.1}), is_overfitted({})
    (True, False, False)
    """
    return evaluation.get("eval_overfit", 0.0) > OVERFIT


def verdict(evaluation: Mapping[str, float], history: Mapping[str, Any], steps: int) -> str:
    """The last evaluation in words, and the best one if that was better.

    >>> print(verdict({"eval_natural": 0.99, "eval_one_step": 0.95, "eval_robust": 0.03, "eval_overfit": 0.92}, {}, 40))
    catastrophic overfitting: the validation accuracy is 95.0% under an attack of one step and 3.0% under one of 40
    steps. Use a smaller eps, or the method replay or pgd.
    """
    natural, one, robust = (evaluation[f"eval_{name}"] for name in ("natural", "one_step", "robust"))
    if is_overfitted(evaluation):
        said = (
            f"catastrophic overfitting: the validation accuracy is {one:.1%} under an attack of one step and "
            f"{robust:.1%} under one of {steps} steps. Use a smaller eps, or the method replay or pgd."
        )
    else:
        said = (
            f"validation accuracy: {natural:.1%}, {robust:.1%} under {steps} steps and two restarts; "
            "report the number of `lapwing evaluate`, which attacks harder."
        )
    return f"{said}{_best_before(robust, history)}"


def _best_before(robust: float, history: Mapping[str, Any]) -> str:
    seen = np.asarray(history.get("eval_robust", ()), float)
    if not np.isfinite(seen).any():
        return ""
    best = int(np.nanargmax(seen))
    if seen[best] <= robust:
        return ""
    return f" The best was {seen[best]:.1%} after step {int(history['step'][best])}."
