import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from lapwing.journal import Run
from lapwing.report import run_pictures
from lapwing.report._drawing import is_log, smooth
from lapwing.report._marks import marks_of
from lapwing.report._pictures import MOST_POINTS
from tests.slow import some

from .runs import falling, started, timed_laps


def axes_of(run: Run, name: str):
    (picture,) = [picture for picture in run_pictures(run) if picture.name == name]
    return picture.make().axes[0]


def lines_of(axes) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_xydata() for line in axes.lines}


def test_a_run_has_the_pictures_that_its_numbers_allow(tmp_path: Path):
    run = started(tmp_path, falling(300))
    assert [picture.name for picture in run_pictures(run)] == [
        "loss.png",
        "learning_rate.png",
        "gradient.png",
    ]
    run.log({"step": 300, "eval_accuracy": 0.5, "eval_loss": 0.1})
    run.save_laps(timed_laps())
    names = [picture.name for picture in run_pictures(run)]
    assert names == ["loss.png", "learning_rate.png", "gradient.png", "metrics.png", "phases.png"]
    assert run_pictures(Run.create("empty", runs_dir=tmp_path)) == []


@pytest.mark.slow
def test_a_picture_is_drawn_in_light_and_in_dark(tmp_path: Path):
    run = started(tmp_path, falling(50))
    for picture in run_pictures(run):
        for content, low, high in ((picture.light, 0.9, 1.0), (picture.dark, 0.0, 0.2)):
            (tmp_path / picture.name).write_bytes(content)
            pixels = imread(tmp_path / picture.name)[..., :3]
            assert low <= np.median(pixels) <= high
            assert pixels.std() > 0.02, "something is drawn"


def test_the_loss_is_on_a_log_axis_smoothed_over_raw(tmp_path: Path):
    run = started(tmp_path, falling(400))
    run.log({"step": 400, "eval_loss": 0.02})
    axes = axes_of(run, "loss.png")
    assert axes.get_yscale() == "log"
    raw = run.curve("loss")[1]
    lines = lines_of(axes)
    smoothed = lines["loss, mean of 10 steps"][:, 1]
    np.testing.assert_allclose(smoothed[100], np.exp(np.log(raw[95:105]).mean()))
    assert [len(line) for name, line in lines.items() if name.startswith("_")] == [400]
    assert lines["evaluation"].tolist() == [[400.0, 0.02]]
    lowest = f"lowest: {raw.min():.4g} at step {raw.argmin()}"
    assert lines[lowest].tolist() == [[raw.argmin(), raw.min()]]


def test_a_negative_loss_has_a_linear_axis(tmp_path: Path):
    assert axes_of(started(tmp_path, [1.0, 0.5, -2.0]), "loss.png").get_yscale() == "linear"


@pytest.mark.parametrize(
    "losses", some([[0.5], [0.0, 0.0], [1.0, 0.0, 0.5], [1.0, 1.0], [1e-30, 1e30], [math.inf, 1.0]], 2, 5)
)
def test_odd_losses_are_drawn_without_a_warning(tmp_path: Path, losses: list[float]):
    for picture in run_pictures(started(tmp_path, losses)):
        assert picture.light


def test_losses_that_are_never_finite_have_no_picture(tmp_path: Path):
    names = [picture.name for picture in run_pictures(started(tmp_path, [math.nan, math.inf]))]
    assert names == ["learning_rate.png", "gradient.png"]


def test_what_is_not_finite_is_marked_and_breaks_the_line(tmp_path: Path):
    losses = falling(30)
    losses[[10, 20]] = math.nan, math.inf
    axes = axes_of(started(tmp_path, losses), "loss.png")
    assert [text.get_text() for text in axes.texts] == ["not finite at 2 steps, first at 10"]
    crosses = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [[10, 20]]
    (line,) = [line for name, line in lines_of(axes).items() if name == "loss"]
    assert np.isnan(line[[10, 20], 1]).all()


def test_both_norms_are_drawn_where_clipping_did_something(tmp_path: Path):
    clipped = lines_of(axes_of(started(tmp_path, falling(400)), "gradient.png"))
    assert {"before clipping, mean of 10 steps", "after clipping"} <= set(clipped)
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(
            *({"step": i, "loss": 1.0, "gradient_norm": 2.0 + i, "clipped_norm": 2.0 + i} for i in range(5))
        )
    assert set(lines_of(axes_of(run, "gradient.png"))) == {"never clipped"}


def test_what_happened_is_marked_on_the_curves(tmp_path: Path):
    run = started(tmp_path, falling(300))
    run.event("applied", id="1", command="set", arguments={"learning_rate": 0.005}, step=100)
    run.event("applied", id="2", command="pause", arguments={}, step=110)
    run.event("learning_rate", step=120, learning_rate=0.0025)
    run.event("rollback", step=200, to=150)
    assert [(mark.step, mark.text) for mark in marks_of(run)] == [
        (100, "learning_rate=0.005"),
        (120, "learning_rate=0.0025"),
        (150, "back from 200"),
    ]
    for name in ("loss.png", "learning_rate.png", "gradient.png"):
        axes = axes_of(run, name)
        marked = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
        assert marked == [100, 120, 150]
        words = [text.get_text().strip() for text in axes.texts]
        assert words == ["learning_rate=0.005", "learning_rate=0.0025", "back from 200"]


def test_marks_stand_where_their_effect_is_seen(tmp_path: Path):
    run = started(tmp_path, falling(300))
    for step in (100, 200):
        run.event("applied", id=str(step), command="set", arguments={"clip": step}, step=step)
    run.event("rollback", step=250, to=150)
    run.event("applied", id="3", command="set", arguments={"clip": 300}, step=300)
    run.event("resumed", step=280)
    assert [(mark.step, mark.text) for mark in marks_of(run)] == [
        (100, "clip=100"),
        (150, "clip=200"),
        (150, "back from 250"),
        (280, "resumed"),
    ]


def test_many_marks_are_lines_without_words(tmp_path: Path):
    run = started(tmp_path, falling(300))
    for step in range(100):
        run.event("rollback", step=100, to=step)
    axes = axes_of(run, "learning_rate.png")
    assert len(axes.lines) == 101
    assert len(axes.texts) == 12


def test_a_long_run_is_drawn_with_few_points_and_every_spike(tmp_path: Path):
    losses = falling(100_000)
    losses[77_777] = 1e6
    lines = lines_of(axes_of(started(tmp_path, losses), "loss.png"))
    assert all(len(line) <= MOST_POINTS for line in lines.values())
    assert [77_777, 1e6] in [point for line in lines.values() for point in line.tolist()]


def test_smoothing_leaves_out_what_cannot_be_shown():
    values = np.array([1.0, math.nan, 3.0, math.inf, 5.0])
    assert smooth(values, 1, log=False)[[0, 2, 4]].tolist() == [1.0, 3.0, 5.0]
    assert smooth(values, 3, log=False).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert np.isnan(smooth(np.array([math.nan, 0.0]), 1, log=True)).all()
    assert not is_log(np.zeros(3))


def test_a_million_values_are_smoothed_in_no_time():
    values = falling(1_000_000)
    start = time.process_time()
    smooth(values, 25_000, log=True)
    assert time.process_time() - start < 1.0


@pytest.mark.slow
def test_drawing_leaves_pyplot_and_its_settings_alone(tmp_path: Path):
    run = started(tmp_path, falling(30))
    code = f"""
import sys
from lapwing.journal import Run
from lapwing.report import run_pictures
pictures = run_pictures(Run.open({str(run.folder)!r}))
assert "matplotlib" not in sys.modules and "jax" not in sys.modules
import matplotlib
before = matplotlib.rcParams.copy()
pictures[0].light, pictures[0].dark
assert "matplotlib.pyplot" not in sys.modules and "jax" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)
