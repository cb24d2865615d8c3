"""`lapwing evaluate RUN`: evaluates what a run has learned, at its best checkpoint or at another one.

An experiment with an evaluation of its own (`evaluate_run`) adds the options of it.
"""

import inspect
import sys
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lapwing.experiments import Experiment, changed_source, evaluate_trained, find, load_trained, read_source
from lapwing.journal import Run, find_run, to_json

from .output import cell, print_json, print_rich
from .parse import RUNS, Json, RunName, RunsFolder, parse, parse_known
from .resume import SourceFile
from .which import Best, Newest, Step, chosen


@dataclass
class _Evaluate:
    run: RunName
    step: Step = None
    best: Best = False
    newest: Newest = False
    source: SourceFile = None
    runs_dir: RunsFolder = RUNS
    as_json: Json = False


@dataclass(frozen=True)
class _NoOptions:
    """Nothing to choose."""


def evaluate(words: Sequence[str]) -> None:
    """Evaluates the task of a run with the parameters of a checkpoint, and prints its metrics.

    `lapwing evaluate RUN --help` also shows the options of an experiment with an evaluation of its own, such as the
    attack of `adversarial`.
    """
    help_ = [word for word in words if word in ("-h", "--help")]
    others = [word for word in words if word not in help_]
    asked = words if others == [] else others
    options, rest = parse_known(_Evaluate, asked, "lapwing evaluate", inspect.getdoc(evaluate))
    run = Run.open(find_run(options.run, options.runs_dir))
    target, source = read_source(run, options.source)
    if changed_source(run, source):
        print(f"lapwing: {target} has changed since {run.name} was trained", file=sys.stderr)
    experiment = find(target, source)
    own = parse(_own_options(experiment), [*rest, *help_], f"lapwing evaluate {options.run}", _ABOUT)
    # What is best by its loss may not be best by an evaluation that has its own measure.
    default = "newest" if experiment.evaluate_run else "best"
    trained = load_trained(run, experiment, chosen(options.step, options.best, options.newest, default))
    found = experiment.evaluate_run(trained, own) if experiment.evaluate_run else evaluate_trained(trained)
    report = {"run": run.name, "step": trained.step, **found.numbers}
    run.put("evaluation.json", to_json(report) + "\n")
    run.note(f"evaluated at step {trained.step}: {found.summary}")
    if options.as_json:
        print_json(report)
    else:
        print_rich(cell(f"{run.name}, step {trained.step}\n\n{found.text}"))


_ABOUT = "Further options of every evaluation: --step N, --best, --newest, --source FILE, --runs DIR, --json."


def _own_options(experiment: Experiment) -> Any:
    """The class of the second argument of `evaluate_run`."""
    if experiment.evaluate_run is None:
        return _NoOptions
    hints = typing.get_type_hints(experiment.evaluate_run)
    return list(hints.values())[1]
