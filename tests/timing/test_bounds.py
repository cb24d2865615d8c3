"""What keeps a Laps cheap in a long run: fair samples, joined bars, bounded memory, small overhead."""

import random
import statistics
import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lapwing.timing import Laps
from lapwing.timing._series import Bars
from lapwing.timing._tally import Tally
from tests.speed import quiet_seconds
from tests.timing.fake_clock import FakeClock


def new_tally(room: int) -> Tally:
    return Tally(room, random.Random(0).random)


def test_quantiles_of_a_short_stream_are_exact():
    tally = new_tally(1024)
    values = [float(value) for value in range(1, 1001)]
    random.Random(1).shuffle(values)
    for value in values:
        tally.add(value)
    assert (tally.count, tally.total, tally.max) == (1000, 500500.0, 1000.0)
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert [tally.quantile(0.5), tally.quantile(0.95)] == pytest.approx([cuts[49], cuts[94]])


def test_quantiles_of_a_long_stream_are_close():
    tally = new_tally(1024)
    for value in range(100_000):
        tally.add(value / 100_000)
    assert tally.quantile(0.5) == pytest.approx(0.5, abs=0.05)
    assert tally.quantile(0.95) == pytest.approx(0.95, abs=0.02)


def test_a_pattern_does_not_fool_the_sample():
    """Every second call is slow: a choice of every k-th would see only the slow or only the quick ones."""
    tally = new_tally(1024)
    for number in range(100_000):
        tally.add(float(number % 2))
    assert statistics.mean(tally._sample) == pytest.approx(0.5, abs=0.06)


def test_the_same_stream_gives_the_same_quantiles():
    def quantile() -> float | None:
        tally = new_tally(64)
        for number in range(10_000):
            tally.add(float(number))
        return tally.quantile(0.95)

    assert quantile() == quantile()


@given(st.lists(st.lists(st.integers(0, 100).map(float), max_size=5), min_size=1, max_size=60))
def test_bars_keep_the_sum_of_all_steps_in_a_bounded_number(steps):
    bars = Bars(room=8)
    for parts in steps:
        bars.add(parts)
    series = bars.series(tuple("abcde"))
    assert len(series.seconds) <= 8
    filled = [min(series.stride, len(steps) - bar * series.stride) for bar in range(len(series.seconds))]
    totals = [sum(n * bar[i] for n, bar in zip(filled, series.seconds, strict=True)) for i in range(5)]
    assert totals == pytest.approx([sum(parts[i] for parts in steps if i < len(parts)) for i in range(5)])


def test_memory_does_not_grow_with_the_run():
    clock = FakeClock()
    laps = Laps(clock=clock, trace_events=1000)
    durations = random.Random(0)

    def steps(number: int) -> None:
        for _ in range(number):
            with laps("attack"):
                for _ in range(3):
                    with laps("forward"):
                        clock.wait(durations.random())
            laps.step()

    tracemalloc.start()
    try:
        steps(4_000)  # all rooms are full
        before, _ = tracemalloc.get_traced_memory()
        steps(12_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert abs(after - before) < 5_000
    assert laps.summary().step.count == 15_999


def test_a_step_that_never_ends_does_not_fill_the_memory():
    laps = Laps(clock=FakeClock(), trace_events=10)
    for _ in range(5_000):
        with laps("attack"):
            pass
    assert len(laps("attack").step._sample) == 64


def test_a_phase_costs_less_than_two_microseconds():
    laps = Laps()

    def phase() -> None:
        with laps("attack"):
            pass

    assert quiet_seconds(phase) < 2e-6
