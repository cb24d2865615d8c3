"""`lapwing list`: the experiments."""

from lapwing.experiments import REGISTRY

from .output import print_json, print_rich, table
from .parse import Json


def list_experiments(*, as_json: Json = False) -> None:
    """Lists the experiments that `lapwing train NAME` can train."""
    if as_json:
        print_json(REGISTRY.about())
    else:
        print_rich(table(["experiment", "what it is"], REGISTRY.about().items()))
