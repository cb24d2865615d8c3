"""The loops of examples/ that are not `fit`'s: trained, killed and resumed, they have the same journal."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import Run, run_folders
from lapwing.timing import LapSummary

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
KILLED_AFTER = 120


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / script), *words]


def steps_of(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def killed(script: str, cwd: Path) -> Run:
    """Starts it in a folder and kills it after some steps."""
    cwd.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command(script), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        deadline = time.monotonic() + 60
        while not any(steps_of(folder) >= KILLED_AFTER for folder in run_folders(cwd / "runs")):
            assert process.poll() is None, process.communicate()[0].decode()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
    return Run.open(run_folders(cwd / "runs")[0])


@pytest.mark.parametrize(
    ("script", "resume"),
    [
        pytest.param("08_pytorch.py", ["--resume"], marks=[TORCH, pytest.mark.slow]),
        pytest.param("07_any_loop.py", [], marks=pytest.mark.slow),
    ],
)
def test_a_loop_that_is_killed_and_resumed_has_the_same_journal(tmp_path: Path, script: str, resume, capsys):
    run = killed(script, tmp_path / "killed")
    assert run.state == "lost"
    before = len(run.columns()["step"])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for words, cwd in (([*resume, str(run.folder)], tmp_path / "killed"), ([], tmp_path)):
        subprocess.run(command(script, *words), cwd=cwd, env=environment, check=True, capture_output=True)
    whole = Run.open(run_folders(tmp_path / "runs")[0])
    assert (run.state, whole.state) == ("finished", "finished")
    columns, expected = run.columns(), whole.columns()
    assert len(columns["step"]) == len(expected["step"]) > before
    for name in expected.keys() - {"time"}:
        np.testing.assert_array_equal(columns[name], expected[name], err_msg=name)
    assert [(e["step"], e["counts"]) for e in run.logged()] == [
        (e["step"], e["counts"]) for e in whole.logged()
    ]
    assert run.laps is not None
    assert LapSummary.from_json(run.laps).phases
    assert main(["compare", str(run.folder), str(whole.folder)]) == 0
    assert "They never differ" in capsys.readouterr().out
