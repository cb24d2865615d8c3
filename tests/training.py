"""A training in a process of its own, for tests that steer, interrupt or kill it."""

import subprocess
import sys
import time
from pathlib import Path

from lapwing.journal import Run, run_folders


def start_training(folder: Path, *words: str, after: int = 0) -> tuple[subprocess.Popen, Run]:
    """`lapwing train WORDS` in `folder`, unchecked, once it has logged a step later than `after`."""
    command = [sys.executable, "-m", "lapwing", "train", *words, "--no-check"]
    training = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and training.poll() is None:
        for run in map(Run.open, run_folders(folder / "runs")):
            if run.latest().get("step", -1) > after:
                return training, run
        time.sleep(0.05)
    training.kill()
    raise AssertionError(f"it did not begin to log: {training.communicate()}")
