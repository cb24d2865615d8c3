"""`lapwing list` and `lapwing train NAME`: the experiments, each with its own options."""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from lapwing.experiments import REGISTRY
from lapwing.journal import Run

from .output import print_json, print_rich, table
from .parse import Json, RunsFolder, UsageError, parse

_STATUS = {"finished": 0, "failed": 1, "stopped": 130}
_RUNS = Path("runs")

Quiet = Annotated[bool, tyro.conf.arg(help="print nothing but errors")]


def list_experiments(*, as_json: Json = False) -> None:
    """Lists the experiments that `lapwing train NAME` can train."""
    if as_json:
        print_json(REGISTRY.about())
    else:
        print_rich(table(["experiment", "what it is"], REGISTRY.about().items()))


def train(words: list[str]) -> int:
    """Trains the experiment named by the first word."""
    if not words:
        raise UsageError(f"which experiment? there are {', '.join(REGISTRY.entries)}")
    name, *options = words
    if name in ("-h", "--help"):
        print("usage: lapwing train NAME [options]; lapwing train NAME --help shows the options\n")
        list_experiments()
        return 0
    experiment = REGISTRY.load(name)
    chosen = parse(_with_options(experiment.Config), options, f"lapwing train {name}", REGISTRY.about()[name])
    task = experiment.build(chosen.config)
    from lapwing.train import device_name, fit

    # `fit` ends the run; the `with` is for an interrupt before it has begun.
    with Run.create(name, chosen.config, runs_dir=chosen.runs_dir, device=device_name()) as run:
        return _STATUS[fit(task, chosen.config, run, quiet=chosen.quiet).ended]


def _with_options(config: type) -> Any:
    """The experiment's own options, and those of any training."""
    return make_dataclass(
        "Train",
        [
            ("config", tyro.conf.OmitArgPrefixes[config]),
            ("runs_dir", RunsFolder, _RUNS),
            ("quiet", Quiet, False),
        ],
    )
