"""A process that writes as fast as it can is killed by SIGKILL at 20 random moments."""

import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.journal import Run

# Each writer is a fork, which has imported Lapwing already.
KILLS = """
import os, random, signal, sys, time
from lapwing import Run

def write(said):
    run = Run.create("victim", runs_dir=sys.argv[1])
    print(run.folder, file=said, flush=True)
    step = 0
    while True:
        run.log(*({"step": step + i, "loss": 1 / (step + i + 1)} for i in range(3)))
        step += 3
        if step % 30 == 0:
            run.event("milestone", f"reached {step}", step=step)
        print(step, file=said, flush=True)

chance = random.Random(0)
for kill in range(20):
    from_child, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        write(open(pipe, "w"))
    os.close(pipe)
    with open(from_child) as said:
        folder = said.readline().strip()
        first = said.readline() if kill % 2 else ""  # So that some have logged, on any machine.
        time.sleep(chance.uniform(0.001, 0.05))
        os.kill(child, signal.SIGKILL)
        logged = (first + said.read()).split("\\n")[:-1]
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    print(logged[-1] if logged else 0, folder)
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory) -> list[tuple[Path, int]]:
    """Folders with the number of steps that their process is known to have logged."""
    command = [sys.executable, "-c", KILLS, tmp_path_factory.mktemp("runs")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    killed = [line.split(" ", 1) for line in done.stdout.splitlines()]
    return [(Path(folder), int(logged)) for logged, folder in killed]


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


@pytest.mark.slow
def test_every_folder_can_be_gone_on_with(victims):
    for folder, _ in victims:
        with Run.reopen(folder) as run:
            before = len(run.columns().get("step", []))
            run.log({"step": before})
            assert list(run.columns()["step"]) == list(range(before + 1))
        run = Run.open(folder)
        assert run.state == "finished"
        assert run.damaged == 0
