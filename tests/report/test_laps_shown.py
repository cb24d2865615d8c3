import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from lapwing.report import lap_picture, lap_table
from lapwing.report._laps import lap_figure
from lapwing.timing import Laps, LapSummary
from tests.slow import some


def summary_of(steps: int, *, phases: bool = True) -> LapSummary:
    seconds = 0.0
    laps = Laps(clock=lambda: seconds)
    laps.step()
    for step in range(steps):
        if phases:
            with laps("attack"):
                with laps("forward"):
                    seconds += 2.0 + step % 2
                seconds += 1.0
            with laps("update"):
                seconds += 0.5
        seconds += 0.5
        laps.step()
    return laps.summary()


def printed(table, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_the_table_says_what_the_plain_one_says():
    summary = summary_of(5)
    text = printed(lap_table(summary), width=140)
    for line in str(summary).splitlines():
        if "─" not in line:
            assert line.split() in [shown.split() for shown in text.splitlines()]


def test_the_table_of_json_is_that_of_the_summary():
    summary = summary_of(5)
    stored = json.loads(json.dumps(summary.to_json()))
    assert printed(lap_table(stored), 140) == printed(lap_table(summary), 140)


def test_a_flat_table_fits_eighty_columns_without_losing_a_digit():
    laps = Laps()
    for _ in range(3):
        for name in ("setup", "attack", "forward", "backward", "update"):
            with laps(name):
                pass
        laps.step()
    assert "…" not in printed(lap_table(laps.summary()), 80)


def test_the_picture_stacks_the_phases_and_the_rest():
    axes = lap_figure(summary_of(5)).axes[0]
    stacks = {bars.get_label(): bars.patches for bars in axes.containers}
    assert list(stacks) == ["attack  77.8%", "update  11.1%", "unaccounted  11.1%"]
    assert [bar.get_height() for bar in stacks["attack  77.8%"]] == [4.0, 3.0, 4.0, 3.0]
    tops = [bar.get_y() + bar.get_height() for bar in stacks["unaccounted  11.1%"]]
    assert tops == [5.0, 4.0, 5.0, 4.0]
    assert axes.get_ylabel() == "time of a step (s)"


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("steps", some([2, 3000], 0))
def test_pictures_of_short_and_long_runs_are_files(tmp_path, ending, steps):
    path = tmp_path / f"laps.{ending}"
    lap_picture(summary_of(steps).to_json(), path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_steps_without_phases_can_be_drawn(tmp_path):
    lap_picture(summary_of(4, phases=False), tmp_path / "laps.png")
    assert (tmp_path / "laps.png").exists()


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(ValueError, match="expected laps with a steady step to draw, found none"):
        lap_picture(Laps().summary(), tmp_path / "laps.png")


@pytest.mark.slow
def test_the_picture_leaves_pyplot_alone_and_the_import_leaves_matplotlib_alone(tmp_path):
    code = f"""
import sys
from lapwing.report import lap_picture
from lapwing.timing import Laps
assert "matplotlib" not in sys.modules
laps = Laps()
for _ in range(3):
    laps.step()
lap_picture(laps.summary(), {str(tmp_path / "laps.png")!r})
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
