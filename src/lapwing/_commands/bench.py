"""`lapwing bench SUITE`: a benchmark, with its own options."""

from dataclasses import make_dataclass
from typing import Any

import tyro

from lapwing.bench import REGISTRY

from .output import print_json, print_rich, table
from .parse import Json, UsageError, parse


def bench(words: list[str]) -> None:
    """Runs the benchmark named by the first word."""
    if not words:
        raise UsageError(f"which benchmark? there are {', '.join(REGISTRY.entries) or 'none yet'}")
    name, *options = words
    if name in ("-h", "--help"):
        print("usage: lapwing bench SUITE [options]; lapwing bench SUITE --help shows the options\n")
        print_rich(table(["suite", "what it measures"], REGISTRY.about().items()))
        return
    suite = REGISTRY.load(name)
    chosen = parse(_with_json(suite.Config), options, f"lapwing bench {name}", REGISTRY.about()[name])
    results = suite.run(chosen.config)
    if chosen.as_json:
        print_json(results)
    else:
        suite.show(results)


def _with_json(config: type) -> Any:
    """The suite's own options, and --json."""
    return make_dataclass("Bench", [("config", tyro.conf.OmitArgPrefixes[config]), ("as_json", Json, False)])
