"""The script for Slurm in docs/clusters.md, with a Slurm that has one node: this one."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lapwing.journal import Run

from .docs import DOCS

SHIMS = {
    "srun": 'exec "$@"',
    "lapwing": f'exec {sys.executable} -m lapwing "$@"',
    "scontrol": 'echo "$@" >> requeued.txt',
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch) -> Path:
    for name, line in SHIMS.items():
        shim = tmp_path / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f"#!/bin/sh\n{line}\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    (script,) = re.findall(r"```text\n(#!/bin/bash\n.*?)```", (DOCS / "clusters.md").read_text(), re.DOTALL)
    (tmp_path / "job.sh").write_text(script)
    return tmp_path


def started(folder: Path, after: int) -> tuple[subprocess.Popen, Run]:
    """The job, once its run has made more steps than `after`."""
    job = subprocess.Popen(["bash", "job.sh"], cwd=folder, start_new_session=True)
    path, deadline = folder / "runs" / "adding-77", time.monotonic() + 120
    while time.monotonic() < deadline and job.poll() is None:
        if path.exists() and Run.open(path).latest().get("step", -1) > after:
            return job, Run.open(path)
        time.sleep(0.05)
    job.kill()
    raise AssertionError("it made no steps")


@pytest.mark.slow
def test_a_preempted_job_goes_back_into_the_queue_and_continues(slurm: Path):
    job, run = started(slurm, after=-1)
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(timeout=120) == 143
    assert run.state == "preempted"
    assert (slurm / "requeued.txt").read_text() == "requeue 77\n"
    made = run.latest()["step"]
    job, run = started(slurm, after=made)
    run.post("stop")
    assert job.wait(timeout=120) == 130
    assert run.curve("loss")[0].tolist() == list(range(len(run.curve("loss")[0])))
    assert [event["step"] for event in run.events() if event["event"] == "resumed"] == [made + 1]
    assert (slurm / "requeued.txt").read_text() == "requeue 77\n", "it was stopped by a person"
