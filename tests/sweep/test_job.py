"""What a worker does with a job, here without the worker."""

import dataclasses
from pathlib import Path

import pytest

from lapwing.experiments.adding import Config
from lapwing.journal import Run
from lapwing.sweep import Job, Sweep, run_job
from lapwing.sweep._groups import jobs_of

CONFIG = Config(steps=2, length=2, width=1, batch_size=1, laps_every=0)


def job_of(folder: Path, grid: list[str], deaths: int = 0) -> Job:
    sweep = Sweep.of("adding", CONFIG, grid)
    (job,) = jobs_of("adding", folder, sweep.points(sweep.candidates()), vectorize=True)
    return dataclasses.replace(job, deaths=deaths)


@pytest.mark.slow
def test_the_run_of_a_worker_that_died_on_another_machine_is_taken_over(tmp_path: Path):
    make = tmp_path / "seed=0"
    Run.create("adding", CONFIG, runs_dir=tmp_path, name=make.name).end("stopped", "")
    (make / "lock").write_text('{"pid": 1, "host": "another machine"}')
    (outcome,) = run_job(job_of(tmp_path, []))
    assert outcome.ended == "failed"
    assert outcome.message.startswith("the run seed=0 was being written by process 1 on another machine")
    (outcome,) = run_job(job_of(tmp_path, [], deaths=1))
    assert outcome.ended == "finished"


def test_one_that_cannot_begin_keeps_no_other_of_its_population_from_it(tmp_path: Path):
    outcomes = run_job(job_of(tmp_path, ["learning_rate=0.1,-1,0.2"]))
    assert [outcome.ended for outcome in outcomes] == ["finished", "failed", "finished"]
    assert outcomes[1].message == "learning_rate should be a positive number, but is -1.0"
    assert Run.open(tmp_path / "learning_rate=0.2,seed=0").state == "finished"


def test_one_that_had_finished_is_not_run_again_when_its_worker_died(tmp_path: Path):
    first, second = (
        run_job(job_of(tmp_path, ["learning_rate=0.1"])),
        run_job(job_of(tmp_path, ["learning_rate=0.1"], deaths=1)),
    )
    assert first[0].ended == second[0].ended == "finished"
    assert second[0].message == "before its worker died"
    assert [event["event"] for event in Run.open(tmp_path / "learning_rate=0.1,seed=0").events()].count(
        "finished"
    ) == 1


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        ("adding", "'widht' is not an option any more"),
        ("nothing", "'nothing' is not an experiment; there are "),
    ],
)
def test_an_error_is_one_line(tmp_path: Path, experiment: str, said: str):
    (outcome,) = run_job(Job(experiment, str(tmp_path), {"a": {"widht": 1}}))
    assert (outcome.point, outcome.ended) == ("a", "failed")
    assert outcome.message.startswith(said)
    assert "\n" not in outcome.message
