"""On a real Ray cluster of two machines, both of them here, one of which goes away in the middle."""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import JournalError, Run, run_folders

from .test_run import STEPS, TINY, events, pause, process_of, steps_of

ray = pytest.importorskip("ray", reason="Ray is not installed")

# What Ray and the libraries it brings have to say of each other is not ours to mend.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


# Two points are paused at the same time, so neither may end before the other is found.
LONG = 20 * STEPS


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_the_points_of_a_machine_that_dies_are_finished_elsewhere(cluster, capsys):
    machines = [cluster.add_node(num_cpus=1) for _ in range(2)]

    def kill() -> None:
        first = pause()
        second = pause(but=(first.name,))
        cluster.remove_node(machines[0], allow_graceful=False)
        for run in (first, second):
            with contextlib.suppress(JournalError):  # One of them is no more.
                run.post("resume")

    killer = threading.Thread(target=kill)
    killer.start()
    words = ["--steps", str(LONG), "--grid", "width=1..4", "--name", "spread"]
    status = main(
        ["sweep", "adding", *TINY, *words, "--engine", "ray", "--address", cluster.address, "--json"]
    )
    killer.join()
    told = json.loads(capsys.readouterr().out)
    assert (status, told["finished"], told["failed"]) == (0, 4, [])
    runs = [Run.open(folder) for folder in run_folders("runs")]
    moved = [run for run in runs if events(run, "restarted")]
    assert len(moved) == 1
    assert events(moved[0], "resumed")[0]["step"] > 0
    assert all(steps_of(run) == list(range(LONG)) for run in runs)


def test_a_task_that_is_preempted_is_submitted_again(cluster, capsys):
    cluster.add_node(num_cpus=1)
    killer = threading.Thread(target=lambda: os.kill(process_of(pause()), signal.SIGTERM))
    killer.start()
    words = ["--steps", str(STEPS), "--name", "taken", "--engine", "ray", "--address", cluster.address]
    status = main(["sweep", "adding", *TINY, *words, "--json"])
    killer.join()
    told = json.loads(capsys.readouterr().out)
    assert (status, told["finished"], told["failed"]) == (0, 1, [])
    (run,) = [Run.open(folder) for folder in run_folders("runs")]
    assert [len(events(run, kind)) for kind in ("preempted", "restarted", "finished")] == [1, 1, 1]
    assert steps_of(run) == list(range(STEPS))
