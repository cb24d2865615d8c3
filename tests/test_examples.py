import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# The first takes times of long loops, the others train machines.
LONG = (
    "02_training.py",
    "03_faster_gradients.py",
    "04_the_doctor.py",
    "05_synthesis_of_a_pattern.py",
    "06_synthesis_of_a_counter.py",
    "07_any_loop.py",
    "13_a_wave_learns_its_period.py",
    "14_a_machine_that_grows.py",
)
TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
SCRIPTS = [
    pytest.param(
        script, marks=[pytest.mark.slow] * (script.name in LONG) + [TORCH] * ("torch" in script.name)
    )
    for script in sorted(EXAMPLES.glob("*.py"))
    if "def build(" not in script.read_text()  # Those are experiments: tests/test_examples_own.py.
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_runs(script: Path, tmp_path: Path):
    command = [sys.executable, "-W", "error", script]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "10"[script.name in LONG]}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_examples_are_numbered_without_gaps():
    numbers = sorted(int(script.name.split("_")[0]) for script in EXAMPLES.glob("*.py"))
    assert numbers == list(range(1, len(numbers) + 1))
