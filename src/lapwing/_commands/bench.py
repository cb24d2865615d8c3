"""`lapwing bench NAME`: a benchmark, with its own options."""

from collections.abc import Sequence

from lapwing.bench import REGISTRY

from .named import choose
from .output import print_json
from .parse import Json


def bench(words: Sequence[str]) -> None:
    """Runs the benchmark named by the first word."""
    chosen = choose(REGISTRY, words, "lapwing bench", [("as_json", Json, False)])
    if chosen is None:
        return
    results = chosen.module.run(chosen.options.config)
    if chosen.options.as_json:
        print_json(results)
    else:
        chosen.module.show(results)
