"""Optuna's search: the tree-structured Parzen estimator (TPE), with early stopping of bad trials (pruning).

A study is made from the trials whenever one is asked for, which takes milliseconds, and forgotten: all state is in the
run folders, and the same trials have the same answer.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lapwing.journal import to_json

from ._axes import Axis, SweepError
from ._search import PARTS, Trial, Values, draw

Pruner = Literal["median", "halving", "none"]

# A study does without infinite values, and so do medians.
_LARGEST = 1e30
_TRIES = 10
# The parts before it are too early to judge a trial, and fewer trials too few to compare it with.
_FIRST_PART = 4
_LEAST_FINISHED = 5
_ETA = 3


@dataclass(frozen=True)
class Optuna:
    """Proposes `samples` combinations near those that were good, by Optuna's TPE sampler, after some random ones.

    When five trials have finished, others can be pruned. `median`: from a fifth of its steps on, if its best cost so
    far is above the median of the others at the same point. `halving`: if it is not in the best third of those that
    have reached 10%, 30% or 90% of their steps (asynchronous successive halving).
    """

    samples: int
    seed: int = 0
    pruner: Pruner = "median"

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise SweepError("the search optuna needs the number of combinations to try; write --samples 40")

    def ask(self, axes: Sequence[Axis], trials: Sequence[Trial]) -> Values | None:
        """A combination that is not among the trials; None if there are `samples`, or no others.

        >>> Optuna(samples=2).ask([Axis("width", (8, 16))], [Trial({"width": 8}, "finished", 0.5)])
        {'width': 16}
        """
        optuna = _optuna()
        if not axes:
            raise SweepError(
                "the search optuna needs an option to search over; write --grid lr=1e-4..1e-2:log"
            )
        if len(trials) >= self.samples:
            return None
        # By the number of trials, so that a sweep that continues does not repeat its first draws.
        chance = random.Random(f"{self.seed}/{len(trials)}")
        sampler = optuna.samplers.TPESampler(
            seed=chance.getrandbits(32),
            n_startup_trials=min(10, max(2, self.samples // 4)),
            multivariate=True,
            constant_liar=True,
        )
        study = _study(axes, trials, sampler=sampler)
        space = {axis.path: _distribution(axis) for axis in axes}
        known = {to_json(trial.values) for trial in trials}
        for _ in range(_TRIES):
            params = study.ask(space).params
            values = {axis.path: _value(axis, params[axis.path]) for axis in axes}
            if to_json(values) not in known:
                return values
        left = (values for values in draw(axes, len(trials) + 1, chance) if to_json(values) not in known)
        return next(left, None)

    def prune(self, trial: Trial, others: Sequence[Trial]) -> bool:
        """Whether a running trial is so far behind the others that it should be stopped.

        >>> others = [Trial({"width": width}, "finished", 0.1, {4: 0.2, 5: 0.1}) for width in range(5)]
        >>> search = Optuna(samples=9)
        >>> [search.prune(Trial({"width": 9}, curve={4: cost}), others) for cost in (0.1, 0.3)]
        [False, True]
        """
        finished = sum(other.state == "finished" for other in others)
        if self.pruner == "none" or finished < _LEAST_FINISHED or not trial.curve:
            return False
        if self.pruner == "halving":
            return any(_is_behind(trial, others, part) for part in _rungs())
        return _is_above_median(trial, others)


def _is_above_median(trial: Trial, others: Sequence[Trial]) -> bool:
    optuna = _optuna()
    pruner = optuna.pruners.MedianPruner(n_startup_trials=_LEAST_FINISHED, n_warmup_steps=_FIRST_PART)
    # Only the curves count here; a space without axes is enough.
    study = _study([], [*others, trial], pruner=pruner)
    return bool(pruner.prune(study, study.trials[-1]))


def _is_behind(trial: Trial, others: Sequence[Trial], part: int) -> bool:
    """Whether a trial is not in the best 1/eta of those that have reached a part."""
    if part not in trial.curve:
        return False
    costs = sorted(other.curve[part] for other in [*others, trial] if part in other.curve)
    return len(costs) >= _ETA and trial.curve[part] > costs[len(costs) // _ETA - 1]


def _rungs() -> list[int]:
    return [part for part in (2, 2 * _ETA, 2 * _ETA**2) if part < PARTS]


def _study(axes: Sequence[Axis], trials: Sequence[Trial], **options: Any) -> Any:
    optuna = _optuna()
    study = optuna.create_study(**options)
    space = {axis.path: _distribution(axis) for axis in axes}
    for trial in trials:
        study.add_trial(_frozen(trial, space))
    return study


def _frozen(trial: Trial, space: Mapping[str, Any]) -> Any:
    from optuna.trial import TrialState, create_trial

    states = {"running": TrialState.RUNNING, "pruned": TrialState.PRUNED}
    state = states.get(trial.state, TrialState.COMPLETE)
    value = min(trial.cost if trial.cost is not None else _LARGEST, _LARGEST)
    return create_trial(
        state=state,
        value=value if state == TrialState.COMPLETE else None,
        params={path: trial.values[path] for path in space},
        distributions=dict(space),
        intermediate_values={part: min(cost, _LARGEST) for part, cost in trial.curve.items()},
    )


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis.values, range) and axis.is_listed:
        return IntDistribution(axis.values[0], axis.values[-1])
    if axis.is_listed:
        return CategoricalDistribution(axis.values)
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _value(axis: Axis, param: Any) -> Any:
    return param if axis.is_listed else axis.rounded(param)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise SweepError(
            "the search optuna needs Optuna, which is not installed; write pip install 'lapwing[optuna]', or "
            "--search random"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
