"""`lapwing list` and `lapwing train NAME`: the experiments, each with its own options."""

from collections.abc import Sequence
from typing import Annotated

import tyro

from lapwing.experiments import REGISTRY
from lapwing.journal import Run

from .named import choose
from .output import print_json, print_rich, table
from .parse import RUNS, Json, RunsFolder

_STATUS = {"finished": 0, "failed": 1, "stopped": 130}

Quiet = Annotated[bool, tyro.conf.arg(help="print nothing but errors")]


def list_experiments(*, as_json: Json = False) -> None:
    """Lists the experiments that `lapwing train NAME` can train."""
    if as_json:
        print_json(REGISTRY.about())
    else:
        print_rich(table(["experiment", "what it is"], REGISTRY.about().items()))


def train(words: Sequence[str]) -> int:
    """Trains the experiment named by the first word."""
    chosen = choose(
        REGISTRY, words, "lapwing train", [("runs_dir", RunsFolder, RUNS), ("quiet", Quiet, False)]
    )
    if chosen is None:
        return 0
    name, experiment, options = chosen
    task = experiment.build(options.config)
    from lapwing.train import device_name, fit

    # `fit` ends the run; the `with` is for an interrupt before it has begun.
    with Run.create(name, options.config, runs_dir=options.runs_dir, device=device_name()) as run:
        return _STATUS[fit(task, options.config, run, quiet=options.quiet).ended]
