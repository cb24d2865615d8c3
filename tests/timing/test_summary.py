import dataclasses
import json

import pytest

from lapwing.core import format_seconds
from lapwing.timing import Laps, LapSummary, SummaryError, lap_rows
from tests.timing.fake_clock import FakeClock

TABLE = """\
phase             count   total    mean     p50     p95     max   share     own  compile   first
────────────────  ─────  ──────  ──────  ──────  ──────  ──────  ──────  ──────  ───────  ──────
attack                2  6.00 s  3.00 s  3.00 s  3.00 s  3.00 s   75.0%  1.00 s           12.0 s
  attack/forward      4  5.00 s  1.25 s  1.25 s  1.25 s  1.25 s   62.5%  5.00 s           5.00 s
update                2  500 ms  250 ms  250 ms  250 ms  250 ms    6.2%  500 ms   40.0 s  1.00 s
unaccounted           2  1.50 s  750 ms  750 ms  750 ms  750 ms   18.8%  1.50 s
────────────────  ─────  ──────  ──────  ──────  ──────  ──────  ──────  ──────  ───────  ──────
step                  2  8.00 s  4.00 s  4.00 s  4.00 s  4.00 s  100.0%  1.50 s           16.0 s
1 step with first calls or compilation excluded: 16.0 s."""


@pytest.fixture
def laps() -> Laps:
    clock = FakeClock()
    laps = Laps(clock=clock)
    laps("attack")
    with laps.compiling("update", "compile"):
        clock.wait(40.0)
    for scale in (4.0, 1.0, 1.0):
        with laps("attack"):
            clock.wait(0.5 * scale)
            for _ in range(2):
                with laps("forward"):
                    clock.wait(1.25 * scale)
        with laps("update"):
            clock.wait(0.25 * scale)
        clock.wait(0.75 * scale)
        laps.step()
    return laps


def test_the_table_shows_what_sums_to_what(laps):
    assert str(laps.summary()) == TABLE


def test_columns_without_a_measurement_are_left_out():
    laps = Laps()
    for _ in range(2):
        with laps("attack"):
            pass
        laps.step()
    header, rows, _ = lap_rows(laps.summary())
    assert header == ["phase", "count", "total", "mean", "p50", "p95", "max", "share", "first"]
    assert [row[0] for row in rows] == ["attack", "unaccounted", "step"]


def test_steps_without_phases_are_a_table_of_one_row():
    laps = Laps()
    for _ in range(3):
        laps.step()
    assert [row[0] for row in lap_rows(laps.summary())[1]] == ["step"]


def test_a_forgotten_step_is_said():
    laps = Laps()
    with laps("attack"):
        pass
    assert "No step was closed: call laps.step() at the end of each step." in str(laps.summary())


def test_json_comes_back_as_the_same_summary(laps):
    summary = laps.summary()
    text = json.dumps(summary.to_json(), allow_nan=False)
    assert LapSummary.from_json(json.loads(text)) == summary


def test_json_of_nothing_measured_is_valid():
    assert LapSummary.from_json(json.loads(json.dumps(Laps().summary().to_json(), allow_nan=False)))


def test_other_json_is_refused():
    for other in ({"loss": 1.0}, [1.0]):
        with pytest.raises(
            SummaryError, match=r"expected the dict of LapSummary.to_json\(\).*found format None"
        ):
            LapSummary.from_json(other)


def test_damaged_json_is_refused(laps):
    data = laps.summary().to_json()
    for name in ("series", "step", "apart"):
        damaged = {key: value for key, value in data.items() if key != name}
        with pytest.raises(SummaryError, match=f"the summary of laps is damaged: {name} is None"):
            LapSummary.from_json(damaged)
    with pytest.raises(SummaryError, match="damaged: total is None"):
        LapSummary.from_json({**data, "step": {"path": "step"}})


def test_a_summary_cannot_be_changed(laps):
    with pytest.raises(dataclasses.FrozenInstanceError):
        laps.summary().apart = 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ns"),
        (45e-9, "45.0 ns"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1.00 µs"),
        (9.996e-6, "10.0 µs"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (2.3610, "2.36 s"),
        (99.96, "100 s"),
        (12345.6, "12346 s"),
    ],
)
def test_times_have_three_digits_and_a_unit(seconds, text):
    assert format_seconds(seconds) == text
