"""Which points share a job, and how many threads a worker has."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.experiments import REGISTRY
from lapwing.experiments.adding import Config
from lapwing.sweep import Sweep, _local
from lapwing.sweep._groups import jobs_of
from lapwing.sweep._local import LocalEngine
from tests.slow import some

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
    sweep = Sweep.of("adding", Config(), ["width=1,2", "learning_rate=0.1,0.01"], seeds=2)
    points = sweep.points(sweep.candidates())
    alone = jobs_of("adding", Path("runs/x"), points, vectorize=False)
    assert [len(job.points) for job in alone] == [1] * 8
    together = jobs_of("adding", Path("runs/x"), points, vectorize=True)
    assert [{settings["width"] for settings in job.points.values()} for job in together] == [{1}, {2}]
    assert [len(job.points) for job in together] == [4, 4]
    assert all(os.path.isabs(job.folder) for job in together)


def test_workers_share_the_gpus_and_their_memory(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    with LocalEngine(4) as engine:
        engine._gpus = ["0", "5"]  # As if the machine had two.
        told = [engine._environment(number, tmp_path) for number in range(4)]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in told] == ["0", "5", "0", "5"]
    assert {each["XLA_PYTHON_CLIENT_MEM_FRACTION"] for each in told} == {"0.450"}
    assert not any("NPROC" in each for each in told)


@pytest.mark.parametrize("name", some(REGISTRY.entries, 0, 3, 7))
def test_no_option_of_an_experiment_is_in_the_way_of_the_sweep(name: str, capsys):
    with pytest.raises(SystemExit) as end:
        main(["sweep", name, "--help"])
    assert not end.value.code
    assert "--grid" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there is one thread anyway")
@pytest.mark.parametrize("workers", ["all cores", "one of them"])
def test_a_worker_computes_with_its_share_of_the_cores(tmp_path: Path, workers: str):
    cores = len(os.sched_getaffinity(0))
    engine = LocalEngine(1 if workers == "all cores" else cores)
    with engine:
        environment = engine._environment(0, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", BUSY_THREADS], env=environment, capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > 1) == (workers == "all cores")


@pytest.mark.parametrize(
    ("kills", "how"),
    [
        ([3, 3], "by SIGKILL"),
        (
            [3, 4],
            r"by the kernel, which was out of memory when it had [\d.]+ [MG]B; a smaller batch or model, or .*",
        ),
    ],
)
def test_a_worker_that_is_killed_says_whether_memory_was_short(
    tmp_path: Path, monkeypatch, kills: list[int], how: str
):
    counts = iter(kills)
    monkeypatch.setattr(_local, "count_kills", lambda: next(counts))
    worker = _local._Worker(0, dict(os.environ), tmp_path / "log.txt")
    worker.process.kill()
    worker.stop()
    assert re.fullmatch(how, worker.close())
