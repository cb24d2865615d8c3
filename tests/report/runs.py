"""Runs to look at, made of plain numbers."""

from pathlib import Path
from typing import Any

import numpy as np

from lapwing.cli import main
from lapwing.journal import Run, RunWriter
from lapwing.timing import Laps

COMPANY = {"gradient_norm": 2.0, "clipped_norm": 1.0, "learning_rate": 0.1}


def started(folder: Path, losses: Any, **settings: Any) -> RunWriter:
    """A run that has logged these losses, a step each second, and still runs."""
    run = Run.create("adding", {"learning_rate": 0.1, **settings}, runs_dir=folder, device="cpu")
    run.log(
        *(
            {"step": i, "loss": float(loss), **COMPANY, "time": run.created + i}
            for i, loss in enumerate(losses)
        )
    )
    return run


def falling(steps: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.2, steps)
    return np.exp(noise - 4 * np.arange(steps) / steps)


def timed_laps() -> dict[str, Any]:
    seconds = 0.0
    laps = Laps(clock=lambda: seconds)
    laps.step()
    for _ in range(5):
        for name in ("data", "forward"):
            with laps(name):
                seconds += 0.25
        laps.step()
    return laps.summary().to_json()


def ask(capsys: Any, *words: str) -> tuple[int, str, str]:
    """What a command answers: its status, and what it prints."""
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err
