import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lapwing.timing import Stopwatch
from tests.timing.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def watch(clock: FakeClock) -> Stopwatch:
    return Stopwatch(clock)


def play(watch: Stopwatch, clock: FakeClock, *calls: str | float) -> list[float]:
    for call in calls:
        if isinstance(call, str):
            getattr(watch, call)()
        else:
            clock.wait(call)
    return watch.lap_times()


def test_the_time_between_stop_and_start_is_left_out(watch, clock):
    laps = play(watch, clock, "start", 1.0, "lap", 1.0, "stop", 1.0, "start", 1.0, "lap", 3.0, "lap")
    assert laps == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("calls", "laps"),
    [
        (["lap"], []),
        (["stop", 1.0, "lap"], []),
        (["start", 1.0, "stop", 1.0, "lap"], []),
        (["start", 1.0, "stop", 1.0, "stop", 1.0, "start", 1.0, "lap"], [2.0]),
        (["start", 1.0, "start", 1.0, "lap"], [2.0]),
        (["start", 1.0, "stop", 8.0, "start", 2.0, "stop", 8.0, "start", 4.0, "lap"], [7.0]),
        (["start", 1.0, "lap", 1.0, "reset", 1.0, "lap"], []),
        (["start", 1.0, "reset", 1.0, "start", 1.0, "lap"], [1.0]),
        (["start", "lap"], [0.0]),
    ],
)
def test_a_call_at_a_wrong_moment_does_nothing(watch, clock, calls, laps):
    assert play(watch, clock, *calls) == laps


def test_lap_times_are_a_copy(watch, clock):
    play(watch, clock, "start", 1.0, "lap").append(99.0)
    assert watch.lap_times() == [1.0]


def test_a_with_statement_starts_and_stops(watch, clock):
    with watch as entered:
        play(entered, clock, 1.0, "lap", 2.0)
    assert play(watch, clock, 5.0, "start", 1.0, "lap") == [1.0, 3.0]


def test_a_with_statement_stops_when_its_block_raises(watch, clock):
    def work() -> None:
        with watch:
            clock.wait(1.0)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert play(watch, clock, 5.0, "start", "lap") == [1.0]


class Model:
    """What a person with a notebook would do: count each second as it passes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.running, self.current, self.laps = False, 0, []

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def lap(self) -> None:
        if self.running:
            self.laps.append(self.current)
            self.current = 0

    def second(self) -> None:
        self.current += self.running


@given(st.lists(st.sampled_from(["start", "stop", "lap", "reset", "second", "second"]), max_size=40))
def test_any_sequence_of_calls_agrees_with_the_model(calls):
    clock, model = FakeClock(), Model()
    watch = Stopwatch(clock)
    for call in calls:
        getattr(model, call)()
        clock.wait(1.0) if call == "second" else getattr(watch, call)()
        assert watch.lap_times() == model.laps


def test_a_sleep_counts_in_wall_time_and_not_in_processor_time():
    wall, cpu = Stopwatch(), Stopwatch(clock=time.process_time)
    with wall, cpu:
        time.sleep(0.05)
        wall.lap()
        cpu.lap()
    assert wall.lap_times()[0] >= 0.05
    assert cpu.lap_times()[0] < 0.025
