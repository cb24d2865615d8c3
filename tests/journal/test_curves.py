import math
from pathlib import Path

import numpy as np
import pytest

from lapwing.journal import JournalError, Run
from lapwing.journal._curves import thin


def test_columns_are_numpy_and_the_callers_own(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log({"step": 0, "loss": 1.0}, {"step": 1, "loss": 0.5})
        columns = run.columns()
        assert all(column.dtype == np.float64 for column in columns.values())
        columns["loss"] *= 0
        assert run.columns()["loss"].tolist() == [1.0, 0.5]
        run.log({"step": 2, "loss": 0.25})
        assert run.columns()["loss"].tolist() == [1.0, 0.5, 0.25]


def test_a_curve_has_what_was_logged_and_nothing_else(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(
            {"step": 0, "loss": 1.0, "learning_rate": 0.1},
            {"step": 1, "loss": math.nan, "learning_rate": 0.1},
        )
        run.log({"step": 2, "eval_accuracy": 0.5})
        run.log({"step": 2, "loss": -math.inf, "learning_rate": 0.1})
    steps, losses = run.curve("loss")
    assert steps.tolist() == [0, 1, 2]
    np.testing.assert_equal(losses, [1.0, math.nan, -math.inf])
    steps, accuracy = run.curve("eval_accuracy")
    assert (steps.tolist(), accuracy.tolist()) == ([2], [0.5])
    with pytest.raises(
        JournalError, match="has no metric 'los'; there are eval_accuracy, learning_rate, loss, step, time"
    ):
        run.curve("los")


def test_a_loss_that_never_was_a_number_is_a_curve_of_nan(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(
            {"step": 0, "loss": math.nan, "learning_rate": 0.1},
            {"step": 1, "loss": math.nan, "learning_rate": 0.1},
        )
    assert run.curve("loss")[0].tolist() == [0, 1]


def test_a_loss_that_was_no_number_is_known_by_its_company(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log({"step": 0, "loss": 1.0, "learning_rate": 0.1})
        run.log({"step": 1, "loss": math.nan, "learning_rate": 0.1, "skipped": 1.0})
    assert run.curve("loss")[0].tolist() == [0, 1]


@pytest.mark.parametrize("count", [2, 99, 100, 101, 1234, 100_000])
def test_a_thin_curve_keeps_ends_and_extremes(count: int):
    values = np.random.default_rng(0).normal(size=count)
    values[count // 3] = math.nan
    steps, kept = thin(np.arange(count), values, 100)
    assert len(steps) <= 100
    assert len(steps) == count or len(steps) > 60
    assert (np.diff(steps) > 0).all()
    np.testing.assert_equal(values[steps], kept)
    assert {0, count - 1, np.nanargmin(values), np.nanargmax(values)} <= set(steps.tolist())


def test_a_thin_curve_of_nothing_finite_is_no_error():
    assert len(thin(np.arange(1000), np.full(1000, math.nan), 10)[0]) <= 10


def test_what_is_put_into_a_run_stays_inside(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as writer:
        run = Run.open(writer.folder)
        run.put("pictures/loss.png", b"drawn")
        run.put("pictures/loss.png", b"again")
        run.put("report.html", "é")
        with pytest.raises(JournalError, match="is not inside the run"):
            run.put("../report.html", "x")
    assert [path.read_bytes() for path in run.pictures] == [b"again"]
    assert (run.folder / "report.html").read_text(encoding="utf-8") == "é"
