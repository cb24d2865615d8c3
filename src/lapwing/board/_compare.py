"""What differs between several runs, and the first step at which two of them differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lapwing.journal import Run, flat
from lapwing.report import ComparisonError, compare_runs

MOST_METRICS = 12


def differences(folders: Sequence[Path]) -> dict[str, Any]:
    """The settings, and the fields of the environment, that are not the same in all runs, with a value for each run.

    >>> import tempfile
    >>> def made(rate):
    ...     with Run.create("demo", {"learning_rate": rate, "width": 8}, runs_dir=tempfile.mkdtemp()) as run:
    ...         return run.folder
    >>> differences([made(0.1), made(0.2)])["config"]
    [('learning_rate', [0.1, 0.2])]
    """
    runs = [Run.open(folder) for folder in folders]
    environments = [
        {key: value for key, value in run.environment.items() if key != "command"} for run in runs
    ]
    return {
        "config": _differing([{"experiment": run.experiment, **run.config} for run in runs]),
        "environment": _differing(environments),
    }


def first_difference(a: Path, b: Path) -> dict[str, Any]:
    """The first step at which two runs have different numbers, and by how much."""
    try:
        found = compare_runs(Run.open(a), Run.open(b))
    except ComparisonError as error:
        return {"error": str(error)}
    return {
        "differs_at": found.differs_at,
        "steps": found.steps,
        "first_step": found.first_step,
        "last_step": found.last_step,
        "metrics": found.metrics[:MOST_METRICS],
    }


def _differing(trees: Sequence[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
    leaves = [dict(flat(tree)) for tree in trees]
    paths = dict.fromkeys(path for each in leaves for path in each)
    rows = [(path, [each.get(path) for each in leaves]) for path in paths]
    return [(path, values) for path, values in rows if len(set(map(repr, values))) > 1]
