"""Watchers: what looks wrong while a run is trained, reported once, with its evidence. They decide nothing.

Some read the metrics that the host has anyway (`leak`, `parting`); some read a probe of a step (`_probe.py`): a leaf
that does not move, updates lost in rounding, dead units, attention that collapsed. A first value that is not finite is
found by a replay of its step (`_replay.py`). Each speaks once in a run, also in one that is resumed: what was said is
among the events of the run folder.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lapwing.core import format_list
from lapwing.journal import RunWriter

from ._config import FitConfig
from ._probe import Look
from ._processes import is_first
from ._transfer import Rows

EVENT = "watch"
PROBING = ("still_leaf", "lost_updates", "dead_units", "attention")
_LOOKS = 3  # A finding must hold in this many probes in a row.
_LOST = 0.5  # Share of the entries of a leaf.
_DEAD = 0.5  # Share of the units of a layer.
_FEW_VALUES = 8  # A unit with fewer values may be silent by chance.
_ONE_POSITION, _UNIFORM, _SELECTIVE = 0.05, 0.9999, 0.95  # Entropy as a share of the largest.
_SOON, _TO_MEAN, _FAR_BELOW = 100, 10, 0.05
_EVALUATIONS, _RISE, _FALL = 3, 0.1, 0.1

Finding = tuple[str, dict[str, Any]]


class Watchers:
    """The watchers of a run, and what they have said."""

    def __init__(
        self,
        config: FitConfig,
        run: RunWriter | None,
        say: Callable[[str], None],
        chance: Callable[[], tuple[float, str] | None],
        classes: int | None = None,
    ):
        self._most_chance = math.log(classes or 2)
        self._config, self._run, self._say, self._chance = config, run, say, chance
        events = run.events() if run else []
        self._said = {event.get("watcher") for event in events if event.get("event") == EVENT}
        self._looks: deque[Look] = deque(maxlen=_LOOKS + 1)
        self._has_selected: set[str] = set()  # Attention that was not uniform at some probe.
        self._largest: dict[str, float] = {}  # Gradient of a leaf, and the learning rate, at their largest.
        self._early: list[float] = []
        self._losses: list[float] = []  # Since the last evaluation.
        self._evaluations: list[tuple[int, float, float]] = []

    def is_on(self, name: str) -> bool:
        """Whether a watcher is on, and has not spoken yet."""
        return self._config.watch.is_on(name) and name not in self._said and is_first()

    @property
    def wants_probe(self) -> bool:
        return any(map(self.is_on, PROBING))

    def speak(self, name: str, step: int, said: str, **evidence: Any) -> None:
        """Reports a finding: on the screen, in the journal, and so on the board."""
        self._said.add(name)
        text = f"{name} at step {step}: {said}"
        self._say(text)
        if self._run:
            self._run.event(EVENT, f"**watch** {text}", watcher=name, step=step, said=said, evidence=evidence)

    def _report(self, name: str, step: int, watcher: Callable[[], Finding | None]) -> None:
        if self.is_on(name) and (found := watcher()) is not None:
            self.speak(name, step, found[0], **found[1])

    # What a checkpoint keeps.

    def to_json(self) -> dict[str, Any]:
        return {
            "early": self._early,
            "losses": self._losses,
            "evaluations": [list(each) for each in self._evaluations],
        }

    def restore(self, record: Mapping[str, Any] | None) -> None:
        """Continues with what a checkpoint knows; nothing, if it is of an earlier version."""
        record = record or {}
        self._early = list(record.get("early", [0.0] * _SOON))
        self._losses = list(record.get("losses", []))
        self._evaluations = [tuple(each) for each in record.get("evaluations", [])]
        self._looks.clear()

    # Metrics.

    def on_steps(self, rows: Rows, is_first_pass: bool) -> None:
        """Takes the metrics of the next steps; `is_first_pass`: the data have not been seen before."""
        losses = np.asarray(rows.columns["loss"], np.float64).tolist()
        self._losses += losses
        if len(self._early) < _SOON and is_first_pass:
            self._early += losses[: _SOON - len(self._early)]
            self._report("leak", rows.steps.stop, self._leak)

    def _leak(self) -> Finding | None:
        losses = np.asarray(self._early)
        if len(losses) < _TO_MEAN:
            return None
        means = np.convolve(losses, np.full(_TO_MEAN, 1 / _TO_MEAN), "valid")
        # The labels of a batch are counted only if the loss could be far below chance.
        if not means.min() < _FAR_BELOW * max(losses[0], self._most_chance):
            return None
        if (known := self._chance()) is None or not means.min() < _FAR_BELOW * known[0]:
            return None
        chance, guess = known
        at = int(np.argmax(means < _FAR_BELOW * chance)) + _TO_MEAN
        said = (
            f"the loss is {means[at - _TO_MEAN]:.4g} after {at} updates, on data that the model sees for the first "
            f"time, where {guess} gives {chance:.4g}. Look at what the inputs know of the targets (the target among "
            "them, an attention mask that shows the next token, target statistics), unless the problem is this easy"
        )
        return said, {"loss": float(means[at - _TO_MEAN]), "chance": chance, "updates": at}

    def on_evaluation(self, step: int, evaluation: Mapping[str, float]) -> None:
        value, losses = evaluation.get("eval_loss"), [loss for loss in self._losses if np.isfinite(loss)]
        self._losses = []
        if value is None or not np.isfinite(value) or not losses:
            return
        self._evaluations.append((step, float(np.mean(losses)), value))
        self._report("parting", step, self._parting)

    def _parting(self) -> Finding | None:
        steps, losses, values = map(np.asarray, zip(*self._evaluations, strict=True))
        best = int(np.argmin(values))
        later, fell = values[best + 1 :], losses[best] - losses[-1]
        if len(later) < _EVALUATIONS or fell < _FALL * abs(losses[best]):
            return None
        if (later[-_EVALUATIONS:] < values[best] + _RISE * abs(values[best])).any():
            return None
        said = (
            f"evaluation and training part: eval_loss is {values[best]:.4g} at step {steps[best]} and {values[-1]:.4g} "
            f"now, higher in the last {_EVALUATIONS} evaluations, while the training loss fell from {losses[best]:.4g} "
            f"to {losses[-1]:.4g}. Look at overfitting (stop.patience, more data, weight_decay), and at what differs "
            "in evaluation: dropout, statistics, preprocessing"
        )
        return said, {
            "best_step": int(steps[best]),
            "eval_loss": [float(values[best]), float(values[-1])],
            "loss": [float(losses[best]), float(losses[-1])],
        }

    def roll_back(self, step: int) -> None:
        """The run returns to `step`."""
        self._evaluations = [each for each in self._evaluations if each[0] <= step]
        self._losses = []
        self._looks.clear()

    # Probes.

    def on_probe(self, look: Look) -> None:
        """Takes what a probe saw. A step that was skipped, or without a learning rate, says nothing."""
        for attention, (entropy, *_) in zip(look.attentions, look.weights, strict=True):
            if entropy < _SELECTIVE:
                self._has_selected.add(attention.place)
        if look.skipped or look.rate == 0:
            self._looks.clear()
            return
        sizes = {**dict(zip(look.paths, map(float, look.leaves.size), strict=True)), "rate": look.rate}
        self._largest = {name: max(size, self._largest.get(name, 0.0)) for name, size in sizes.items()}
        self._looks.append(look)
        if len(self._looks) < _LOOKS:
            return
        looks = list(self._looks)
        self._report("lost_updates", look.step, lambda: self._lost_updates(looks[-_LOOKS:]))
        self._report("dead_units", look.step, lambda: _dead_units(looks[-_LOOKS:]))
        self._report("attention", look.step, lambda: _collapsed(looks[-_LOOKS:], self._has_selected))
        if len(looks) > _LOOKS:
            self._report("still_leaf", look.step, lambda: self._still_leaf(looks))

    def _lost_updates(self, looks: Sequence[Look]) -> Finding | None:
        lost = np.array([look.leaves.lost for look in looks]).min(0)
        found = [at for at in np.flatnonzero(lost >= _LOST) if self._is_under_way(looks, int(at))]
        if not found:
            return None
        worst, now = max(found, key=lambda at: lost[at]), looks[-1]
        names = format_list([f"{now.paths[at]} ({now.dtypes[at]}, {lost[at]:.0%})" for at in found])
        said = (
            "updates are too small for their dtype: of the entries with a gradient, these shares did not change in any "
            f"of the steps {_steps(looks)}: {names}, at a learning rate of {now.rate:.3g}. Look at keeping parameters "
            "in float32 (precision='bfloat16' computes in bfloat16 and keeps them so), or at a larger learning rate"
        )
        shares = {now.paths[at]: float(lost[at]) for at in found}
        return said, {"lost": shares, "worst": now.paths[worst], "steps": [look.step for look in looks]}

    def _is_under_way(self, looks: Sequence[Look], leaf: int) -> bool:
        """Whether gradient and learning rate are near their largest: at the end of a run small updates are right."""
        path = looks[0].paths[leaf]
        return all(
            look.leaves.size[leaf] > 0.1 * self._largest[path] and look.rate > 0.1 * self._largest["rate"]
            for look in looks
        )

    def _has_gradient(self, looks: Sequence[Look]) -> bool:
        """Whether the gradient of some leaf is not far below the largest so far: the run has not converged."""
        largest = max(size for name, size in self._largest.items() if name != "rate")
        return all(max(look.leaves.size) > 0.01 * largest for look in looks)

    def _still_leaf(self, looks: Sequence[Look]) -> Finding | None:
        sums = np.array([look.leaves.checksum for look in looks])
        lost = np.array([look.leaves.lost for look in looks]).max(0)
        is_still = (sums == sums[0]).all(0)
        found = np.flatnonzero(is_still & (lost < _LOST))
        if not len(found) or is_still.all() or not self._has_gradient(looks):
            return None
        first, now = looks[0].step, looks[-1]
        slopes = {now.paths[at]: float(max(look.leaves.largest[at] for look in looks)) for at in found}
        names = format_list([f"{path} (largest gradient {slope:.3g})" for path, slope in slopes.items()])
        said = (
            f"no bit changed from step {first} to step {now.step} in {names}, while other leaves moved. Look at "
            "whether the loss still depends on it (a dead relu before it, a mask, an expert that nothing is sent to), "
            "and at the optimizer's mask"
        )
        return said, {"largest_gradient": slopes, "from": first, "to": now.step}


def _dead_units(looks: Sequence[Look]) -> Finding | None:
    now, found, counts = looks[-1], [], {}
    for at, layer in enumerate(now.layers):
        dead = int((~np.array([look.alive[at] for look in looks])).all(0).sum())
        if layer.values >= _FEW_VALUES and dead >= max(2, _DEAD * layer.units):
            state = "0" if layer.kind == "relu" else "saturated"
            found.append(f"{dead} of {layer.units} units of the {layer.kind} at {layer.place} are {state}")
            counts[layer.place] = [dead, layer.units]
    if not found:
        return None
    said = (
        f"{format_list(found)} for every example of the batches of steps {_steps(looks)}. Look at the learning rate "
        "(one large update can do it), the initial biases, and the scale of the inputs"
    )
    return said, {"dead": counts, "steps": [look.step for look in looks]}


def _collapsed(looks: Sequence[Look], has_selected: set[str]) -> Finding | None:
    now, found = looks[-1], []
    for at, attention in enumerate(now.attentions):
        numbers = np.array([look.weights[at] for look in looks])
        if (numbers[:, 1] < _ONE_POSITION).all() and len({*numbers[:, 2]}) == 1:
            where = f"all queries attend to position {int(numbers[-1, 2])} of {attention.positions}"
        elif (numbers[:, 0] > _UNIFORM).all() and attention.place in has_selected:
            where = (
                f"every query attends to all {attention.positions} positions alike, which it did not before"
            )
        else:
            continue
        found.append(f"at {attention.place} {where} (entropy {numbers[-1, 0]:.2%} of the largest)")
    if not found:
        return None
    said = (
        f"attention collapsed: {format_list(found)}, in the steps {_steps(looks)}. Look at the scale of queries and "
        "keys (the 1/sqrt(width), a norm of both), the mask, and the learning rate"
    )
    return said, {"places": found, "steps": [look.step for look in looks]}


def _steps(looks: Sequence[Look]) -> str:
    return ", ".join(str(look.step) for look in looks)
