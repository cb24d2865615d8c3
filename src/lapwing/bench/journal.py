"""The cost of the run folder: a record, a poll of the inbox, reading a long run, following one that grows.

Times are the best of several rounds, in real files in a temporary folder. Without jax, as the layer itself.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapwing.journal import Run, RunWriter

from .measure import best, machine, seconds_of, show

REPEATS = 1000
TOGETHER = 1000
# The inbox is polled more carefully for a moment after its last change.
SETTLED_S = 0.3

__all__ = ["Config", "run", "show"]


@dataclass(frozen=True)
class Config:
    """The cost of the run folder."""

    rounds: int = 5
    """rounds of each measurement; the best counts"""
    lines: int = 1_000_000
    """lines of metrics to read"""


def run(config: Config) -> dict[str, Any]:
    """Measures in a temporary folder.

    >>> results = run(Config(rounds=1, lines=1000))
    >>> results["lines"], 0 < results["record_us"] < 1000
    (1000, True)
    """
    with tempfile.TemporaryDirectory() as folder:
        with Run.create("bench", runs_dir=folder) as writer:
            results = _costs_of_a_step(writer, config.rounds)
        _fill(writer.folder / "metrics.jsonl", config.lines)
        reader = Run.open(writer.folder)
        read_s = seconds_of(reader.columns)
        assert len(reader.columns()["step"]) == config.lines
        with Run.reopen(writer.folder) as writer:
            writer.log(_record(config.lines))
            follow_s = seconds_of(reader.columns)
    return {
        **results,
        "lines": config.lines,
        "read_s": round(read_s, 3),
        "follow_one_line_ms": round(follow_s * 1e3, 3),
        **machine(),
    }


def _costs_of_a_step(writer: RunWriter, rounds: int) -> dict[str, float]:
    many = [_record(step) for step in range(TOGETHER)]
    costs = {
        "record_us": best(lambda: writer.log(many[0]), rounds, REPEATS),
        f"record_of_{TOGETHER}_together_us": best(lambda: writer.log(*many), rounds, 1) / TOGETHER,
    }
    writer.poll()
    time.sleep(SETTLED_S)
    writer.poll()
    costs["poll_us"] = best(writer.poll, rounds, REPEATS)
    return {name: round(cost * 1e6, 3) for name, cost in costs.items()}


def _record(step: int) -> dict[str, float]:
    return {"step": step, "loss": 0.123456789, "gradient_norm": 1.23456789, "learning_rate": 0.001}


def _fill(path: Path, lines: int) -> None:
    numbers = (
        '"loss": 0.123456789, "gradient_norm": 1.23456789, "learning_rate": 0.001, "time": 1794727800.123'
    )
    line = f'{{"step": %d, {numbers}}}\n'
    with open(path, "w") as file:
        file.writelines(line % step for step in range(lines))
