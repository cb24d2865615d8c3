"""The best value that a run has logged of its most important metric, for lists of runs.

Which metric that is, the config says (`best` and `mode`); by default it is the lowest loss. Of a long run, what was
found is stored in its folder (`.best.json`) with the position in the file, so the next list reads only what is new.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._errors import JournalError
from ._json import encode
from ._tail import Record, as_number, stretches

if TYPE_CHECKING:
    from ._run import Run

FILE = ".best.json"
_WORTH_STORING = 1 << 16


@dataclass(frozen=True)
class Best:
    """The metric, whether `min` or `max` is best, its best value, and the step of it.

    >>> best = Best("eval_accuracy", "max", 0.97, step=800)
    >>> f"{best.metric} {best.value} after {best.step} steps"
    'eval_accuracy 0.97 after 800 steps'
    """

    metric: str
    mode: str
    value: float
    step: int


def wanted(config: object) -> tuple[str, str]:
    """The metric that decides what is best in a run, and whether "min" or "max" does.

    >>> wanted({"best": "eval_accuracy", "mode": "max"}), wanted({"steps": 5})
    (('eval_accuracy', 'max'), ('loss', 'min'))
    """
    settings = config if isinstance(config, dict) else {}
    metric, mode = settings.get("best"), settings.get("mode")
    known = metric if isinstance(metric, str) and metric else "loss"
    return known, mode if mode in ("min", "max") else "min"


def best_of(run: "Run", metric: str, mode: str) -> Best | None:
    """The best value of a metric; None if it was never logged, or never finite."""
    best, position, damaged = _stored(run, metric, mode)
    tail = run.follow("metrics")
    tail.position, tail.damaged = position, damaged
    for batch in tail.batches():
        for stretch, back_to in stretches(batch):
            best = _better(best, stretch, metric, mode)
            if best is not None and back_to is not None and best.step >= back_to:
                # The best was undone: the second best is somewhere before it.
                return _of_all(run, metric, mode)
    run.damaged_metrics = tail.damaged
    if tail.position - position > _WORTH_STORING:
        about = {
            "metric": metric,
            "mode": mode,
            "position": tail.position,
            "damaged": tail.damaged,
            "best": best,
        }
        with contextlib.suppress(JournalError):  # A folder that cannot be written can still be read.
            run.put(FILE, encode(about) + "\n")
    return best


def _better(best: Best | None, rows: list[Record], metric: str, mode: str) -> Best | None:
    sign = -1.0 if mode == "max" else 1.0
    least = math.inf if best is None else sign * best.value
    for row in rows:
        value = as_number(row.get(metric))
        if sign * value < least and math.isfinite(value) and "step" in row:
            least, best = sign * value, Best(metric, mode, value, int(row["step"]))
    return best


def _of_all(run: "Run", metric: str, mode: str) -> Best | None:
    columns = run.raw_columns()
    steps, values = columns.get("step", []), columns.get(metric, [])
    rows = [{"step": step, metric: value} for step, value in zip(steps, values, strict=False)]
    return _better(None, [row for row in rows if math.isfinite(row["step"])], metric, mode)


def _stored(run: "Run", metric: str, mode: str) -> tuple[Best | None, int, int]:
    """What was found before, how far the file had been read, and how many lines were damaged; the beginning if there is
    nothing of use."""
    try:
        size = (run.folder / "metrics.jsonl").stat().st_size
        match run.read_json(FILE):
            case {
                "metric": str(name),
                "mode": str(kind),
                "position": int(position),
                "damaged": int(damaged),
                "best": found,
            } if (name, kind) == (metric, mode) and 0 <= position <= size and damaged >= 0:
                match found:
                    case None:
                        return None, position, damaged
                    case {"value": float() | int() as value, "step": int(step)}:
                        return Best(metric, mode, float(value), step), position, damaged
    except (JournalError, OSError):
        pass
    return None, 0, 0
