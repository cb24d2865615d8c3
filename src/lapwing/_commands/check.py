"""`lapwing check NAME`: all checks that apply to the training step of an experiment, in a table."""

import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import tyro

from .named import choose_experiment
from .output import print_json, print_rich, table
from .parse import Json, UsageError

Only = Annotated[tuple[str, ...], tyro.conf.arg(metavar="CHECK ...", help="run only these checks")]
Seconds = Annotated[float, tyro.conf.arg(metavar="S", help="time budget in seconds for all checks")]


def check(words: Sequence[str]) -> int:
    """Checks the experiment named by the first word; exit status 1 if a check fails."""
    own = [("only", Only, ()), ("budget_s", Seconds, 120.0), ("as_json", Json, False)]
    chosen = choose_experiment(words, "lapwing check", own)
    if chosen is None:
        return 0
    experiment, options = chosen
    if not options.budget_s >= 0:
        raise UsageError(f"--budget-s should be at least 0 seconds, but is {options.budget_s}")
    from lapwing.check import run_all

    outcomes = run_all(
        experiment.build(options.config),
        options.config,
        only=options.only,
        budget_s=options.budget_s,
        tell=lambda cost: print(cost, file=sys.stderr),
    )
    counts = Counter(outcome.result for outcome in outcomes)
    if options.as_json:
        print_json({"experiment": experiment.name, "checks": [dataclasses.asdict(each) for each in outcomes]})
    else:
        rows = [[each.check, each.result, each.detail, round(each.seconds, 2)] for each in outcomes]
        print_rich(table(["check", "result", "detail", "seconds"], rows, numbers=["seconds"]))
        print(f"{experiment.name}: {', '.join(f'{count} {result}' for result, count in counts.items())}")
    return 1 if counts["failed"] else 0
