"""One sweep at a time in a folder."""

import os
import signal
import time
from pathlib import Path

import pytest

from lapwing.experiments.adding import Config
from lapwing.journal import LostLockError, Run
from lapwing.sweep import Measure, Sweep, SweepError, run_sweep

from .synthetic import SyntheticEngine

SWEEP = Sweep.of("adding", Config(steps=1), ["width=1,2"])
LOSS = Measure("loss")


def engine(after_step=None) -> SyntheticEngine:
    return SyntheticEngine(lambda settings, share: settings["width"], after_step=after_step)


def test_a_second_sweep_is_refused_and_the_first_one_finishes(tmp_path: Path):
    def run_another() -> None:
        with pytest.raises(
            SweepError, match=rf"the sweep x is being run by process {os.getpid()} on \S+; wait"
        ):
            run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine())

    result = run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine(run_another))
    assert (result.ended, result.summary["finished"]) == ("finished", 2)
    assert run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine()).ended == "finished"


def test_a_sweep_whose_lock_is_deleted_stops(tmp_path: Path):
    def delete() -> None:
        (tmp_path / "x" / "lock").unlink(missing_ok=True)
        time.sleep(0.01)

    with pytest.raises(LostLockError, match=r"the lock of \S+/x was deleted or replaced"):
        run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine(delete))
    assert run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine()).ended == "finished"


def test_a_sweep_that_was_killed_before_it_described_itself_can_be_started_again(tmp_path: Path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "lock").write_text('{"pid": 7, "host": "elsewhere"}')
    assert run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine()).ended == "finished"


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGINT, "stopped"), (signal.SIGTERM, "preempted")])
def test_an_interrupted_sweep_says_how(tmp_path: Path, number: int, ended: str):
    result = run_sweep(
        SWEEP, tmp_path / "x", measure=LOSS, engine=engine(lambda: os.kill(os.getpid(), number))
    )
    assert result.ended == ended
    assert Run.open(tmp_path / "x" / "width=1,seed=0").state == ended
    assert run_sweep(SWEEP, tmp_path / "x", measure=LOSS, engine=engine()).ended == "finished"
