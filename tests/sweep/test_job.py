"""What a worker does with a job, here without the worker."""

import dataclasses
import os
import resource
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from lapwing.experiments.adding import Config
from lapwing.journal import Run
from lapwing.sweep import Job, Outcome, Report, Sweep, _job, _memory, run_job
from lapwing.sweep._engine import report_or_repeat
from lapwing.sweep._groups import jobs_of
from tests.slow import some

CONFIG = Config(steps=2, length=2, width=1, batch_size=1, laps_every=0)


def job_of(folder: Path, grid: list[str], attempts: int = 0) -> Job:
    sweep = Sweep.of("adding", CONFIG, grid)
    (job,) = jobs_of("adding", folder, sweep.points(sweep.candidates()), vectorize=True)
    return dataclasses.replace(job, attempts=attempts)


@pytest.mark.slow
def test_the_lock_of_a_living_process_is_respected_and_that_of_another_machine_taken_over(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(_job, "_LAST_CHECKPOINT_S", 0.1)
    living = Run.create("adding", CONFIG, runs_dir=tmp_path, name="seed=0")
    (outcome,) = run_job(job_of(tmp_path, [], attempts=1))
    assert outcome.ended == "failed"
    assert outcome.message.startswith(f"the run seed=0 is being written by process {os.getpid()} on ")
    living.log({"step": 0, "loss": 1.0})  # It still has its lock.
    living.end("stopped", "")
    (living.folder / "lock").write_text('{"pid": 1, "host": "another machine"}')
    (outcome,) = run_job(job_of(tmp_path, []))
    assert outcome.ended == "finished"


@pytest.mark.slow
def test_a_run_whose_last_checkpoint_is_being_written_is_waited_for(tmp_path: Path):
    run = Run.create("adding", CONFIG, runs_dir=tmp_path, name="seed=0")
    end = threading.Timer(0.6, run.end, ("stopped", ""))
    end.start()
    (outcome,) = run_job(job_of(tmp_path, []))
    end.join()
    assert outcome.ended == "finished", outcome.message


@pytest.mark.slow
def test_one_that_cannot_begin_keeps_no_other_of_its_population_from_it(tmp_path: Path):
    outcomes = run_job(job_of(tmp_path, ["learning_rate=0.1,-1,0.2"]))
    assert [outcome.ended for outcome in outcomes] == ["finished", "failed", "finished"]
    assert outcomes[1].message == "learning_rate should be a positive number, but is -1.0"
    assert Run.open(tmp_path / "learning_rate=0.2,seed=0").state == "finished"


@pytest.mark.slow
def test_one_that_had_finished_is_not_run_again_when_its_worker_died(tmp_path: Path):
    first, second = (
        run_job(job_of(tmp_path, ["learning_rate=0.1"])),
        run_job(job_of(tmp_path, ["learning_rate=0.1"], attempts=1)),
    )
    assert first[0].ended == second[0].ended == "finished"
    assert second[0].message == "before its worker ended"
    assert [event["event"] for event in Run.open(tmp_path / "learning_rate=0.1,seed=0").events()].count(
        "finished"
    ) == 1


HUNGRY = '''"""Needs memory."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lapwing.task import Task


@dataclass
class Config:
    width: int
    steps: int = 2


def build(config: Config) -> Task:
    return Task(
        init=lambda key: jnp.zeros(config.width),
        data=lambda key, step: jax.random.normal(key, (4, 1)),
        loss=lambda w, x: (jnp.mean((x - w[0]) ** 2), {}),
    )
'''


@pytest.fixture
def little_memory():
    """One gigabyte more than this process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/statm")
@pytest.mark.usefixtures("little_memory")
def test_a_point_that_exhausts_memory_says_so_and_the_next_one_goes_on(tmp_path: Path, capfd):
    (tmp_path / "hungry.py").write_text(HUNGRY)
    target = str(tmp_path / "hungry.py")
    (large,) = run_job(Job(target, str(tmp_path / "runs"), {"large": {"width": 2 * 10**9}}))
    assert large.ended == "failed"
    assert large.message == (
        "out of memory: 8 GB were asked for at once; a smaller batch or model, or fewer --workers, may help"
    )
    assert "RESOURCE_EXHAUSTED" in capfd.readouterr().err
    (small,) = run_job(Job(target, str(tmp_path / "runs"), {"small": {"width": 2}}))
    assert small.ended == "finished"


def test_numpy_says_it_too_and_python_without_a_size():
    with pytest.raises(MemoryError) as error:
        np.empty(2**58)
    assert str(_memory.shortage_of(error.value)).startswith(
        "out of memory: 2.31e+06 TB were asked for at once; "
    )
    assert str(_memory.shortage_of(MemoryError())).startswith("out of memory; a smaller batch")
    assert _memory.shortage_of(ValueError("8 GiB")) is None


def test_a_worker_that_the_kernel_killed_for_memory(tmp_path: Path):
    counts = tmp_path / "vmstat"
    counts.write_text("pgfault 12\noom_kill 3\nzone 1\n")
    assert (_memory.count_kills(counts), _memory.count_kills(tmp_path / "nothing")) == (3, 0)
    assert _memory.death_in_words(-9, 0, kills=0) == "by SIGKILL"


def test_a_job_that_was_preempted_is_repeated_and_that_counts_as_no_death():
    job = Job("adding", "runs", {"a": {}, "b": {}})
    ended = [Outcome("a", "finished", ""), Outcome("b", "preempted", "by SIGTERM")]
    assert report_or_repeat(job, ended) == dataclasses.replace(job, attempts=1)
    assert report_or_repeat(job, ended[:1]) == Report(job, ended[:1])


@pytest.mark.parametrize(
    ("experiment", "said"),
    some(
        [
            ("adding", "'widht' is not an option any more"),
            ("nothing", "'nothing' is not an experiment; there are "),
        ],
        1,
    ),
)
def test_an_error_is_one_line(tmp_path: Path, experiment: str, said: str):
    (outcome,) = run_job(Job(experiment, str(tmp_path), {"a": {"widht": 1}}))
    assert (outcome.point, outcome.ended) == ("a", "failed")
    assert outcome.message.startswith(said)
    assert "\n" not in outcome.message
