import csv
import dataclasses
import io
import math
from pathlib import Path

import pytest

from lapwing.experiments.adding import Config
from lapwing.journal import Run
from lapwing.sweep import Candidate, Measure, Random, Sweep, SweepError, run_sweep
from lapwing.sweep import _summary as files
from lapwing.sweep._results import Result, result_of, row
from tests.slow import some

from .synthetic import SyntheticEngine

WIDTH = Candidate("width=8", {"width": 8})


def found(*values: float | None) -> list[Result | None]:
    return [None if value is None else Result(9, {"loss": value}) for value in values]


def test_a_headline_is_chosen_and_shares_have_a_goal():
    assert Measure().for_metrics(["loss", "eval_loss"]) == Measure("eval_loss", None, "lower")
    assert Measure().for_metrics(["loss", "eval_robust"]) == Measure("eval_robust", 0.99, "higher")
    assert Measure(goal=0.5).for_metrics(["eval_accuracy"]).goal == 0.5
    assert Measure("loss", 1.0, "higher").for_metrics(["loss"]).is_success(2.0)
    with pytest.raises(
        SweepError, match=r"'eval_lss' is not a metric of these runs; did you mean eval_loss?"
    ):
        Measure("eval_lss").for_metrics(["eval_loss", "loss"])


def test_what_has_not_finished_is_no_success_and_no_part_of_the_mean():
    told = row(WIDTH, found(1.0, None, 5.0, 2.0), range(4), Measure("loss", goal=2.0))
    assert (told["seeds"], told["finished"], told["mean"]) == (4, 3, pytest.approx(8 / 3))
    assert (told["least"], told["most"], told["success"]) == (1.0, 5.0, 0.5)
    assert told["by_seed"] == {0: 1.0, 2: 5.0, 3: 2.0}
    nothing = row(WIDTH, found(None), [0], Measure("loss", goal=2.0))
    assert [nothing[name] for name in ("mean", "spread", "least", "success")] == [None] * 4
    assert row(WIDTH, found(1.0), [0], Measure("loss"))["success"] is None


def test_the_best_comes_first_and_what_is_no_number_last():
    values = [0.5, None, math.nan, 0.1, math.inf]
    assert sorted(values, key=Measure("loss").cost)[:2] == [0.1, 0.5]
    assert sorted(values, key=Measure("eval_accuracy").cost)[:3] == [math.inf, 0.5, 0.1]


def test_the_result_of_a_round_stays_when_the_next_begins(tmp_path: Path):
    sweep = Sweep.of("adding", Config(), [])
    (point,) = sweep.points(sweep.candidates())
    assert result_of(tmp_path, point) is None
    run = Run.create("adding", runs_dir=tmp_path, name=point.name)
    run.log(*({"step": step, "loss": 1.0 / (1 + step)} for step in range(3)))
    assert result_of(tmp_path, point) is None
    run.end("finished", "", steps=3, eval_loss=0.25)
    run = Run.reopen(run.folder)
    run.log(*({"step": step, "loss": 1.0 / (1 + step)} for step in range(3, 6)))
    assert result_of(tmp_path, point) == Result(3, {"loss": 1 / 3, "eval_loss": 0.25})
    assert result_of(tmp_path, point, visit=1) is None
    run.end("finished", "", steps=6, eval_loss=0.125)
    assert result_of(tmp_path, point) == Result(3, {"loss": 1 / 3, "eval_loss": 0.25})
    assert result_of(tmp_path, point, visit=1) == Result(6, {"loss": 1 / 6, "eval_loss": 0.125})


def summary_of(sweep: Sweep, measure: Measure) -> dict:
    rows = [row(each, found(0.5, 0.7), [0, 1], measure) for each in sweep.candidates()]
    return {"experiment": "adding", "seeds": 2, "rows": rows}


def test_the_table_has_a_column_for_each_axis_and_each_seed(tmp_path: Path):
    sweep = Sweep.of("adding", Config(), ["width=1,2", "learning_rate=0.1"], seeds=2)
    files.write(tmp_path, sweep, summary_of(sweep, Measure("loss")))
    first, second = csv.DictReader(io.StringIO((tmp_path / "summary.csv").read_text()))
    assert (first["width"], second["width"], first["learning_rate"]) == ("1", "2", "0.1")
    assert (first["mean"], first["success"], first["seed=1"]) == ("0.6", "", "0.7")


@pytest.mark.parametrize(
    ("grid", "pictures"),
    some(
        [
            (["width=1,2"], ["heatmap.png"]),
            (["width=1,2", "learning_rate=0.1,0.2"], ["heatmap.png"]),
            (
                ["width=1,2", "learning_rate=0.1,0.2", "clip=1,2"],
                ["heatmap.png", "heatmap-width-clip.png", "heatmap-learning_rate-clip.png"],
            ),
            ([], []),
        ],
        0,
        3,
    ),
)
def test_there_is_a_heat_map_for_each_pair_of_axes(tmp_path: Path, grid: list[str], pictures: list[str]):
    sweep, measure = Sweep.of("adding", Config(), grid, seeds=2), Measure("loss", goal=0.6)
    drawn = files.draw(tmp_path, sweep, summary_of(sweep, measure), measure)
    assert [path.name for path in drawn] == pictures
    assert all(path.read_bytes()[1:4] == b"PNG" for path in drawn)


def test_what_was_drawn_at_random_has_no_cells(tmp_path: Path):
    sweep = Sweep.of("adding", Config(), ["learning_rate=0.1..0.2"], search=Random(2))
    assert files.draw(tmp_path, sweep, summary_of(sweep, Measure("loss")), Measure("loss")) == []


@pytest.mark.parametrize(("mode", "best"), some([("max", "width=48"), ("min", "width=4")], 1))
def test_the_metric_that_a_config_names_is_compared(monkeypatch, tmp_path: Path, mode: str, best: str):
    sweep = Sweep.of("adding", Config(steps=2), ["width=4,48"])
    sweep = dataclasses.replace(sweep, settings={**sweep.settings, "best": "accuracy", "mode": mode})
    monkeypatch.setattr("lapwing.sweep._run.check_metric", lambda *_: None)  # Adding itself has no accuracy.
    engine = SyntheticEngine(lambda settings, done: abs(settings["width"] - 48))
    summary = run_sweep(sweep, tmp_path / "x", engine=engine).summary
    assert (summary["metric"], summary["best"]) == ("accuracy", best)
    summary = run_sweep(sweep, tmp_path / "y", engine=engine, measure=Measure("loss")).summary
    assert (summary["metric"], summary["best"]) == ("loss", "width=48")


def test_a_damaged_description_is_told(tmp_path: Path):
    for content in ("{", "[1]", "[" * 2000, '{"format": 1, "axes": 5}'):
        (tmp_path / "sweep.json").write_text(content)
        with pytest.raises(SweepError, match=r"sweep.json cannot be read: "):
            files.load(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": 2}')
    with pytest.raises(SweepError, match=r"sweep.json cannot be read: its format should be 1, but is 2"):
        files.load(tmp_path)


def test_what_cannot_be_written_is_told_in_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        SweepError, match=r"cannot write to .*/file/x: Not a directory; choose another folder"
    ):
        files.prepare(tmp_path / "file" / "x", Sweep.of("adding", Config(), []), Measure())


def test_numbers_that_are_not_finite_have_no_colour(tmp_path: Path):
    sweep, measure = Sweep.of("adding", Config(), ["width=1,2,3"]), Measure("loss")
    for values, drawn in [((math.inf, 1.0, math.nan), 1), ((math.inf, math.nan, math.nan), 0)]:
        rows = [
            row(each, found(value), [0], measure)
            for each, value in zip(sweep.candidates(), values, strict=True)
        ]
        summary = {"experiment": "adding", "seeds": 1, "rows": rows}
        assert len(files.draw(tmp_path, sweep, summary, measure)) == drawn
