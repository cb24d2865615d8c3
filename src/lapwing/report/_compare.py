"""The first step at which two runs differ, in which metric and by how much, and the settings that differ.

Runs that should be equal are equal bit by bit, so any difference counts; NaN equals NaN. Each metric is compared at the
steps at which both runs logged it; steps that a rollback undid are left out. Times are not compared.

Parameters are compared as plain arrays by name: the caller reads the checkpoints, and this module does not need jax.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lapwing.core import LapwingError
from lapwing.journal import Run, changes

# The command line says nothing about the numbers that the settings do not say.
_NOT_COMPARED = ("command",)

Changes = dict[str, tuple[Any, Any]]
Arrays = Mapping[str, np.ndarray]


class ComparisonError(LapwingError, ValueError):
    """Two runs that cannot be compared."""


@dataclass(frozen=True)
class FirstDifference:
    """The first step at which a metric, or the first checkpoint at which a parameter, differs between two runs.

    >>> import numpy as np
    >>> found = compare_params([(10, {"w": np.array([1.0, 1.5])}, {"w": np.array([1.0, 2.0])})])
    >>> found.leaves[0]
    FirstDifference(name='w', step=10, a=1.5, b=2.0, difference=0.5, relative=0.25)
    """

    name: str
    step: int
    a: float
    b: float
    difference: float
    """For a metric, |a − b|; for a parameter, the largest |a − b| of its entries."""
    relative: float
    """The difference, divided by the larger one of |a| and |b|."""


@dataclass(frozen=True)
class Comparison:
    """The differences between two runs. `metrics` are those that differ, sorted by their first step.

    >>> import tempfile
    >>> def run_with(rate):
    ...     with Run.create("demo", {"learning_rate": rate}, runs_dir=tempfile.mkdtemp()) as run:
    ...         run.log(*({"step": step, "loss": rate * step} for step in range(3)))
    ...     return run
    >>> found = compare_runs(run_with(0.1), run_with(0.2))
    >>> found.config, found.differs_at, found.last_steps
    ({'learning_rate': (0.1, 0.2)}, 1, (2, 2))
    """

    a: str
    b: str
    steps: int
    """The number of steps that both have logged."""
    first_step: int
    last_step: int
    last_steps: tuple[int, int]
    """The last step of each."""
    metrics: tuple[FirstDifference, ...]
    compared: tuple[str, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    config: Changes
    environment: Changes
    source: Changes
    """The hash of the file that each was trained from, if they differ."""

    @property
    def differs_at(self) -> int | None:
        """The first step at which a metric differs; None if none does."""
        return self.metrics[0].step if self.metrics else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "differs_at": self.differs_at}


@dataclass(frozen=True)
class ParamsComparison:
    """The parameters of two runs at their common checkpoints, up to the first that differs.

    >>> import numpy as np
    >>> found = compare_params([(10, {"w": np.ones(2)}, {"w": np.ones(2), "bias": np.zeros(1)})])
    >>> found.differs_at, found.leaves, found.only_in_b
    (10, (), ('bias',))
    """

    steps: tuple[int, ...]
    """The steps that were compared; the leaves differ at the last one, if they do."""
    leaves: tuple[FirstDifference, ...]
    """The leaves that differ, the largest relative difference first."""
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    other_shape: tuple[str, ...] = ()

    @property
    def differs_at(self) -> int | None:
        differ = self.leaves or self.only_in_a or self.only_in_b or self.other_shape
        return self.steps[-1] if differ else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "differs_at": self.differs_at}


def compare_runs(a: Run, b: Run) -> Comparison:
    """Compares the metrics, configs and environments of two runs.

    >>> import tempfile
    >>> def run_with(losses):
    ...     with Run.create("demo", {"learning_rate": 0.1}, runs_dir=tempfile.mkdtemp()) as run:
    ...         run.log(*({"step": step, "loss": loss} for step, loss in enumerate(losses)))
    ...     return run
    >>> found = compare_runs(run_with([1.0, 0.5, 0.25]), run_with([1.0, 0.5, 0.125]))
    >>> found.differs_at, found.metrics[0].name, found.metrics[0].difference
    (2, 'loss', 0.125)
    >>> compare_runs(run_with([1.0, 0.5]), run_with([1.0, 0.5, 0.25])).differs_at is None
    True
    """
    in_a, in_b = (_metrics_of(run) for run in (a, b))
    common = [name for name in in_a if name in in_b]
    steps = np.zeros(0, int)
    for name in common:
        more, _, _ = _common_steps(in_a[name][0], in_b[name][0])
        if not len(steps):
            steps = more
        elif not np.isin(more, steps, assume_unique=True).all():
            steps = np.union1d(steps, more)
    if not len(steps):
        raise ComparisonError(
            f"{a.name} and {b.name} have logged no metric at the same step; compare two runs with common steps"
        )
    found = [each for name in common if (each := _first_difference(name, in_a[name], in_b[name]))]
    return Comparison(
        a=a.name,
        b=b.name,
        steps=len(steps),
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        last_steps=(_last_step(in_a), _last_step(in_b)),
        # Of one step the loss comes first: the others follow from it.
        metrics=tuple(sorted(found, key=lambda each: (each.step, each.name != "loss"))),
        compared=tuple(common),
        only_in_a=tuple(name for name in in_a if name not in in_b),
        only_in_b=tuple(name for name in in_b if name not in in_a),
        config=_differences(
            {"experiment": a.experiment, **a.config}, {"experiment": b.experiment, **b.config}
        ),
        environment=_differences(*(_compared_environment(run) for run in (a, b))),
        source=_differences(*(_compared_source(run) for run in (a, b))),
    )


def compare_params(checkpoints: Iterable[tuple[int, Arrays, Arrays]]) -> ParamsComparison:
    """Compares the arrays of two runs by name, checkpoint by checkpoint, until they differ.

    >>> same, other = {"w": np.ones(3)}, {"w": np.array([1.0, 1.5, 1.0])}
    >>> found = compare_params([(10, same, same), (20, same, other), (30, same, other)])
    >>> found.differs_at, found.leaves[0].name, found.leaves[0].difference
    (20, 'w', 0.5)
    """
    steps = []
    for step, a, b in checkpoints:
        steps.append(step)
        common = [name for name in a if name in b]
        reshaped = tuple(name for name in common if a[name].shape != b[name].shape)
        leaves = [
            _largest_difference(name, step, a[name], b[name]) for name in common if name not in reshaped
        ]
        found = ParamsComparison(
            steps=tuple(steps),
            leaves=tuple(
                sorted(filter(None, leaves), key=lambda leaf: -np.nan_to_num(leaf.relative, nan=np.inf))
            ),
            only_in_a=tuple(name for name in a if name not in b),
            only_in_b=tuple(name for name in b if name not in a),
            other_shape=reshaped,
        )
        if found.differs_at is not None:
            return found
    return ParamsComparison(tuple(steps), ())


def _metrics_of(run: Run) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each metric as steps and values; for a step that was logged twice, the later value."""
    columns = run.columns()
    found = {}
    for name in columns if "step" in columns else ():
        if name not in ("step", "time"):
            steps, values = run.curve(name)
            if (np.diff(steps) <= 0).any():
                steps, last = np.unique(steps[::-1], return_index=True)
                values = values[::-1][last]
            found[name] = steps, values
    return found


def _common_steps(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Any, Any]:
    """The common steps, and their indices in each. Runs that should be equal mostly have the same steps."""
    if np.array_equal(a, b):
        return a, slice(None), slice(None)
    return np.intersect1d(a, b, assume_unique=True, return_indices=True)


def _first_difference(
    name: str, a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]
) -> FirstDifference | None:
    steps, in_a, in_b = _common_steps(a[0], b[0])
    of_a, of_b = a[1][in_a], b[1][in_b]
    differ = ~_equal(of_a, of_b)
    if not differ.any():
        return None
    at = int(differ.argmax())
    return _difference(name, int(steps[at]), of_a[at], of_b[at])


def _largest_difference(name: str, step: int, a: np.ndarray, b: np.ndarray) -> FirstDifference | None:
    differ = ~_equal(a, b).ravel()
    if not differ.any():
        return None
    a, b = (array.astype(np.float64).ravel() for array in (a, b))
    with np.errstate(invalid="ignore"):
        sizes = np.where(differ, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf), -1.0)
    at = int(sizes.argmax())
    return _difference(name, step, a[at], b[at])


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | ((a != a) & (b != b))


def _difference(name: str, step: int, a: Any, b: Any) -> FirstDifference:
    a, b = float(a), float(b)
    difference = abs(a - b)
    size = max(abs(a), abs(b))
    relative = difference / size if size else 0.0
    return FirstDifference(name, step, a, b, difference, relative)


def _last_step(metrics: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> int:
    return max(int(steps[-1]) for steps, _ in metrics.values() if len(steps))


def _compared_environment(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.environment.items() if key not in _NOT_COMPARED}


def _compared_source(run: Run) -> dict[str, Any]:
    """A file that was moved is the same file."""
    return {"source": (run.source or {}).get("sha256")}


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Changes:
    """What differs, by path; NaN equals NaN."""
    return {path: pair for path, pair in changes(a, b).items() if repr(pair[0]) != repr(pair[1])}
