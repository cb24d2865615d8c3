"""A process that writes as fast as it can is killed by SIGKILL at 20 random moments."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lapwing.journal import Run

WRITER = """
import sys
from lapwing import Run
run = Run.create("victim", runs_dir=sys.argv[1])
print(run.folder, flush=True)
step = 0
while True:
    run.log(*({"step": step + i, "loss": 1 / (step + i + 1)} for i in range(3)))
    step += 3
    if step % 30 == 0:
        run.event("milestone", f"reached {step}", step=step)
    sys.stdout.write(f"{step}\\n")
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory) -> list[tuple[Path, int]]:
    """Folders with the number of steps that their process is known to have logged."""
    runs = tmp_path_factory.mktemp("runs")
    chance = random.Random(0)
    killed = []
    for _ in range(20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, runs], stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        folder = Path(writer.stdout.readline().strip())
        time.sleep(chance.uniform(0.001, 0.05))
        writer.kill()
        said = writer.stdout.read().split("\n")[:-1]
        writer.stdout.close()
        assert writer.wait() == -9
        killed.append((folder, int(said[-1]) if said else 0))
    return killed


def test_every_folder_is_readable_and_nothing_logged_is_missing(victims):
    assert sum(logged for _, logged in victims) > 100
    for folder, logged in victims:
        run = Run.open(folder)
        steps = list(run.columns().get("step", []))
        assert steps == list(range(len(steps)))
        assert len(steps) >= logged
        milestones = [event["step"] for event in run.events() if event["event"] == "milestone"]
        assert milestones == list(range(30, len(steps) + 1, 30))[: len(milestones)]
        assert len(milestones) >= logged // 30
        assert run.state == "lost"
        assert run.damaged == 0


def test_every_folder_can_be_gone_on_with(victims):
    for folder, _ in victims:
        with Run.reopen(folder) as run:
            before = len(run.columns().get("step", []))
            run.log({"step": before})
            assert list(run.columns()["step"]) == list(range(before + 1))
        run = Run.open(folder)
        assert run.state == "finished"
        assert run.damaged == 0
