"""What was tuned, on disk: a small JSON file for each loop and kind of device, in the user's cache.

`LAPWING_CACHE` names the folder; the default is `lapwing` in the user's cache directory. Delete it to tune again.
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lapwing.core import cache_folder, replace_file
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._warn import sentence, warn_once


@dataclasses.dataclass(frozen=True)
class Timed:
    """How long a plan takes; of the ordinary loop the plan is None."""

    plan: Shares | None
    seconds: float


def folder() -> Path:
    base = os.environ.get("LAPWING_CACHE")
    if base:
        return Path(base, "persistent")
    return cache_folder() / "persistent"


def write(key: str, timed: Sequence[Timed]) -> None:
    """Keep what was measured, the fastest first; warn once if that is impossible."""
    content = [dataclasses.asdict(each) for each in sorted(timed, key=lambda each: each.seconds)]
    try:
        folder().mkdir(parents=True, exist_ok=True)
        replace_file(folder() / f"{key}.json", json.dumps(content, indent=1) + "\n")
    except OSError as error:
        warn_once("store", f"what was tuned for a loop cannot be kept in {folder()} ({sentence(error)})")


def read(key: str, plans: Iterable[Shares]) -> Timed | None:
    """The fastest of what was measured; None if nothing was, or if it is none of these plans or damaged."""
    try:
        best: Any = json.loads((folder() / f"{key}.json").read_bytes())[0]
        seconds, stored = float(best["seconds"]), best["plan"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if stored is None:
        return Timed(None, seconds)
    return next((Timed(plan, seconds) for plan in plans if dataclasses.asdict(plan) == stored), None)
