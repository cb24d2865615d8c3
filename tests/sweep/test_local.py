"""Who is trained with whom, and how many threads a worker has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.experiments.adding import Config
from lapwing.sweep import Sweep
from lapwing.sweep._groups import jobs_of
from lapwing.sweep._local import LocalEngine

BUSY_THREADS = """
import os, jax, jax.numpy as jnp

def time_of_threads():
    tasks = os.listdir("/proc/self/task")
    words = {task: open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split() for task in tasks}
    return {task: int(told[11]) + int(told[12]) for task, told in words.items()}

multiply = jax.jit(lambda x: jnp.sum(x @ x))
x = jnp.ones((1000, 1000))
multiply(x).block_until_ready()
before = time_of_threads()
for _ in range(40):
    multiply(x).block_until_ready()
used = [now - before.get(task, 0) for task, now in time_of_threads().items()]
print(sum(each > max(used) / 10 for each in used))
"""


def test_points_of_one_shape_are_trained_together():
    sweep = Sweep.of("adding", Config(), ["width=1,2", "rate=0.1,0.01"], seeds=2)
    points = sweep.points(sweep.candidates())
    alone = jobs_of("adding", Path("runs/x"), points, vectorize=False)
    assert [len(job.points) for job in alone] == [1] * 8
    together = jobs_of("adding", Path("runs/x"), points, vectorize=True)
    assert [{point.settings["width"] for point in job.points} for job in together] == [{1}, {2}]
    assert [len(job.points) for job in together] == [4, 4]
    assert all(os.path.isabs(job.folder) for job in together)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there is one thread anyway")
@pytest.mark.parametrize("workers", ["all cores", "one of them"])
def test_a_worker_computes_with_its_share_of_the_cores(tmp_path: Path, workers: str):
    cores = len(os.sched_getaffinity(0))
    engine = LocalEngine(tmp_path, 1 if workers == "all cores" else cores)
    with engine:
        environment = engine._environment(0)
    done = subprocess.run(
        [sys.executable, "-c", BUSY_THREADS], env=environment, capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > 1) == (workers == "all cores")
