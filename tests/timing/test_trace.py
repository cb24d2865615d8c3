import json
import random
from pathlib import Path

import pytest

from lapwing.timing import Laps
from tests.timing.fake_clock import FakeClock


def traced(laps: Laps, folder: Path) -> dict:
    laps.write_trace(folder / "trace.json")
    return json.loads((folder / "trace.json").read_text(encoding="utf-8"))


def complete_events(trace: dict) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def check_format(trace: dict) -> None:
    """The JSON object form of the trace event format, as far as complete and metadata events go."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    metadata = {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert metadata == {"process_name", "thread_name"}
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
        else:
            assert isinstance(event["args"]["name"], str)


def nanoseconds(event: dict) -> tuple[int, int]:
    """Begin and end as a viewer reads them: begin and length, each in whole nanoseconds."""
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def parents(events: list[dict]) -> list[tuple[str, str | None]]:
    """The nesting a viewer sees: each event lies inside the last one still open; sticking out is an error."""
    nesting, open_events = [], []
    order = sorted(events, key=lambda event: (nanoseconds(event)[0], -nanoseconds(event)[1]))
    for event in order:
        begin, end = nanoseconds(event)
        while open_events and nanoseconds(open_events[-1])[1] <= begin:
            open_events.pop()
        if open_events:
            assert end <= nanoseconds(open_events[-1])[1], f"{event} sticks out of {open_events[-1]}"
        nesting.append((event["args"]["path"], open_events[-1]["args"]["path"] if open_events else None))
        open_events.append(event)
    return nesting


def run_steps(laps: Laps, clock: FakeClock, steps: int) -> None:
    durations = random.Random(0)
    for _ in range(steps):
        with laps("attack"):
            for _ in range(3):
                clock.wait(durations.random() / 3)
                with laps("forward"):
                    clock.wait(durations.random() / 7)
        with laps("update"):
            clock.wait(durations.random() / 11)
        laps.step()


def test_the_trace_has_the_format_and_nests(tmp_path):
    clock = FakeClock()
    clock.wait(1234.567)
    laps = Laps(clock=clock)
    run_steps(laps, clock, steps=300)
    trace = traced(laps, tmp_path)
    check_format(trace)
    nesting = parents(complete_events(trace))
    assert set(nesting) == {
        ("step", None),
        ("attack", "step"),
        ("attack/forward", "attack"),
        ("update", "step"),
    }
    assert len(nesting) == 300 * 6


def test_times_are_microseconds_from_the_first_event(tmp_path):
    clock = FakeClock()
    clock.wait(100.0)
    laps = Laps(clock=clock)
    with laps.compiling("forward", "compile"):
        clock.wait(2.0)
    with laps("forward"):
        clock.wait(0.0015)
    laps.step()
    events = complete_events(traced(laps, tmp_path))
    assert [(event["name"], event["ts"], event["dur"]) for event in events] == [
        ("forward (compile)", 0.0, 2_000_000.0),
        ("forward", 2_000_000.0, 1_500.0),
        ("step", 2_000_000.0, 1_500.0),
    ]


def test_a_phase_in_a_wrong_order_still_nests(tmp_path):
    clock = FakeClock()
    laps = Laps(clock=clock)
    outer = laps("data").__enter__()
    clock.wait(1.0)
    inner = laps("forward").__enter__()
    clock.wait(1.0)
    outer.__exit__(None)
    clock.wait(1.0)
    inner.__exit__(None)
    laps.step()
    nesting = parents(complete_events(traced(laps, tmp_path)))
    assert nesting == [("step", None), ("data", "step"), ("data/forward", "data")]


def test_a_long_run_keeps_the_first_and_the_last_events(tmp_path):
    clock = FakeClock()
    laps = Laps(clock=clock, trace_events=20)
    run_steps(laps, clock, steps=100)
    trace = traced(laps, tmp_path)
    events = complete_events(trace)
    assert len(events) == 20
    assert [events[0]["args"]["step"], events[-1]["args"]["step"]] == [0, 99]
    assert trace["otherData"]["events_left_out"] == 600 - 20
    check_format(trace)
    parents(events)


@pytest.mark.parametrize("trace_events", [0, 1])
def test_no_room_for_events_is_no_error(tmp_path, trace_events):
    clock = FakeClock()
    laps = Laps(clock=clock, trace_events=trace_events)
    run_steps(laps, clock, steps=2)
    trace = traced(laps, tmp_path)
    check_format(trace)
    assert len(complete_events(trace)) == trace_events
