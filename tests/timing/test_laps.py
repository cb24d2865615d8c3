import threading
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lapwing.timing import Laps, LapSummary, PhaseTimes
from tests.timing.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def laps(clock: FakeClock) -> Laps:
    return Laps(clock=clock)


def by_path(summary: LapSummary) -> dict[str, PhaseTimes]:
    return {phase.path: phase for phase in summary.phases}


def test_phases_and_the_unaccounted_rest_sum_to_the_step(laps, clock):
    for scale in (100.0, 1.0, 2.0, 3.0):  # the first step is the slow one, and is kept apart
        with laps("attack"):
            clock.wait(8 * scale)
        clock.wait(1 * scale)
        with laps("update"):
            clock.wait(3 * scale)
        laps.step()
    summary = laps.summary()
    attack, update, rest = summary.phases[0], summary.phases[1], summary.unaccounted
    assert (attack.count, attack.total, attack.mean, attack.p50, attack.max) == (3, 48.0, 16.0, 16.0, 24.0)
    assert attack.p95 == pytest.approx(23.2)
    assert [phase.total for phase in (attack, update, rest, summary.step)] == [48.0, 18.0, 6.0, 72.0]
    assert [phase.share for phase in (attack, update, rest)] == [48 / 72, 18 / 72, 6 / 72]
    assert (summary.step.first, summary.step.count) == (1200.0, 3)


def test_time_between_two_steps_belongs_to_the_second(laps, clock):
    for _ in range(2):
        with laps("attack"):
            clock.wait(1.0)
        laps.step()
    clock.wait(5.0)
    with laps("attack"):
        clock.wait(1.0)
    laps.step()
    assert laps.summary().unaccounted.total == 5.0
    assert laps.summary().step.total == 1.0 + 6.0


def test_step_before_any_phase_opens_the_first_step(laps, clock):
    laps.step()
    clock.wait(2.0)
    with laps("attack"):
        clock.wait(1.0)
    laps.step()
    assert laps.summary().step.first == 3.0


def test_a_child_counts_in_its_parent_and_once_in_the_step(laps, clock):
    for _ in range(2):
        with laps("attack"):
            clock.wait(1.0)
            for _ in range(3):
                with laps("forward"):
                    clock.wait(2.0)
        with laps("forward"):
            clock.wait(4.0)
        laps.step()
    summary = laps.summary()
    phases = by_path(summary)
    assert list(phases) == ["attack", "attack/forward", "forward"]
    assert (phases["attack"].total, phases["attack"].own) == (7.0, 1.0)
    assert (phases["attack/forward"].count, phases["attack/forward"].total) == (3, 6.0)
    assert phases["forward"].total == 4.0
    assert (summary.step.total, summary.unaccounted.total) == (11.0, 0.0)


def test_first_calls_are_kept_apart_and_so_is_their_step(laps, clock):
    def step(forward: float, evaluate: float | None = None) -> None:
        with laps("forward"):
            clock.wait(forward)
        if evaluate is not None:
            with laps("evaluate"):
                clock.wait(evaluate)
        laps.step()

    step(60.0)
    step(1.0)
    step(1.0, evaluate=30.0)  # compiles something new: this step is not steady, though its forward is
    step(1.0, evaluate=2.0)
    summary = laps.summary()
    phases = by_path(summary)
    assert (phases["forward"].first, phases["evaluate"].first) == (60.0, 30.0)
    assert (phases["forward"].count, phases["forward"].total) == (2, 2.0)
    assert (phases["evaluate"].count, phases["evaluate"].total) == (1, 2.0)
    assert (summary.step.count, summary.step.total) == (2, 4.0)
    assert (summary.apart, summary.apart_seconds) == (2, 91.0)


def test_stages_of_compiling_stand_beside_the_phase(laps, clock):
    for stage, seconds in (("trace", 1.0), ("lower", 2.0), ("compile", 30.0)):
        with laps.compiling("attack/forward", stage):
            clock.wait(seconds)
    for seconds in (5.0, 0.5):
        with laps("attack"), laps("forward"):
            clock.wait(seconds)
        laps.step()
    forward = by_path(laps.summary())["attack/forward"]
    assert (forward.trace, forward.lower, forward.compile) == (1.0, 2.0, 30.0)
    assert (forward.first, forward.count, forward.mean) == (5.0, 1, 0.5)


def test_compiling_before_the_loop_opens_no_step(laps, clock):
    with laps.compiling("forward", "compile"):
        clock.wait(30.0)
    with laps("forward"):
        clock.wait(1.0)
    laps.step()
    assert laps.summary().step.first == 1.0


def test_a_step_that_compiles_again_is_kept_apart(laps, clock):
    for compiles in (False, False, True, False):
        with laps("forward"):
            clock.wait(1.0)
            if compiles:
                with laps.compiling("forward", "compile"):
                    clock.wait(30.0)
        laps.step()
    forward = laps.summary().phases[0]
    assert (forward.count, forward.max, forward.compile) == (2, 1.0, 30.0)


def test_an_exception_closes_the_phases_it_passes(laps, clock):
    def fail() -> None:
        clock.wait(1.0)
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), laps("attack"), laps("forward"):
            fail()
        clock.wait(2.0)
        laps.step()
    summary = laps.summary()
    assert [phase.total for phase in (*summary.phases, summary.unaccounted)] == [1.0, 1.0, 2.0]
    assert summary.misnested == 0


def test_phases_that_end_in_the_wrong_order_still_sum_to_the_step(laps, clock):
    def data():
        with laps("data"):
            clock.wait(1.0)
            yield
            clock.wait(2.0)

    for _ in range(2):
        batches = data()
        next(batches)
        with laps("forward"):
            next(batches, None)  # ends "data" inside "data/forward"
            clock.wait(4.0)
        laps.step()
    summary = laps.summary()
    assert {phase.path: phase.total for phase in summary.phases} == {"data": 3.0, "data/forward": 2.0}
    assert (summary.unaccounted.total, summary.step.total, summary.misnested) == (4.0, 7.0, 2)
    assert "closed because an outer one ended first: 2" in str(summary)


def test_step_inside_a_phase_is_refused(laps):
    with (
        laps("attack"),
        laps("forward"),
        pytest.raises(RuntimeError, match="inside the phase 'attack/forward'"),
    ):
        laps.step()


def test_a_phase_is_entered_only_where_it_was_made(laps, clock):
    attack = laps("attack")
    with laps("forward"):
        with pytest.raises(RuntimeError, match=r"'attack' was entered inside 'forward'.*with laps.'attack'"):
            attack.__enter__()
        clock.wait(1.0)
    with attack, pytest.raises(RuntimeError, match="'attack' was entered inside 'attack'"):
        attack.__enter__()
    laps.step()
    assert laps.summary().phases[1].first == 1.0


@pytest.mark.parametrize("name", ["", "attack/forward", "unaccounted", 3])
def test_a_name_that_cannot_be_shown_is_refused(laps, name):
    with pytest.raises(ValueError, match=r"expected the name of a phase .* found " + repr(name)):
        laps(name)


def test_an_unknown_stage_is_refused(laps):
    with (
        pytest.raises(ValueError, match="'trace', 'lower', 'compile', found 'link'"),
        laps.compiling("a", "link"),
    ):
        pass


def test_a_name_for_each_item_is_refused_before_it_fills_the_memory(laps):
    for number in range(256):
        laps(f"item {number}")
    with pytest.raises(ValueError, match="at most 256 phases and found one more, 'item 256'"):
        laps("item 256")


def test_another_thread_is_told_to_make_its_own(laps):
    with laps("attack"):
        pass
    errors = []

    def use() -> None:
        for call in (lambda: laps("forward"), laps.step):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=use, name="loader")
    thread.start()
    thread.join()
    belongs = "this Laps belongs to the thread 'MainThread' and was used in 'loader'"
    assert errors == [f"{belongs}; make one Laps for each thread"] * 2


def test_sync_is_waited_for_inside_the_phase(laps, clock):
    for _ in range(2):
        with laps("attack", sync=lambda: clock.wait(5.0)):
            clock.wait(1.0)
        with laps("attack"):  # a sync belongs to one with-statement
            clock.wait(1.0)
        laps.step()
    attack = laps.summary().phases[0]
    assert (attack.first, attack.count, attack.total) == (6.0, 2, 7.0)


def test_sync_is_not_called_after_an_exception_and_its_own_exception_closes_the_phase(laps, clock):
    def fail() -> None:
        clock.wait(2.0)
        raise OSError("device lost")

    with pytest.raises(ZeroDivisionError), laps("attack", sync=fail):
        raise ZeroDivisionError
    with pytest.raises(OSError, match="device lost"), laps("update", sync=fail):
        clock.wait(1.0)
    laps.step()
    assert [phase.first for phase in laps.summary().phases] == [0.0, 3.0]


def test_wait_for_waits_at_once_and_gives_the_value_back(clock):
    waited = []
    laps = Laps(clock=clock, sync=lambda value: (waited.append(value), clock.wait(5.0)))
    with laps("attack") as phase:
        assert phase.wait_for("images") == "images"
        assert waited == ["images"]
    assert laps.summary().phases[0].first == 5.0


def test_wait_for_without_a_way_to_wait_says_what_to_write(laps):
    with (
        laps("attack") as phase,
        pytest.raises(RuntimeError, match=r"write Laps\(sync=jax.block_until_ready\)"),
    ):
        phase.wait_for("images")


def test_a_sleep_counts_in_wall_time_and_not_in_processor_time():
    laps = Laps(cpu=True)
    for _ in range(3):
        with laps("device"):
            time.sleep(0.02)
        with laps("host"):
            end = time.process_time() + 0.02
            while time.process_time() < end:
                pass
        laps.step()
    device, host = laps.summary().phases
    assert device.total >= 0.04
    assert device.cpu < 0.02
    assert host.cpu >= 0.04


def test_processor_times_sum_to_the_step(clock):
    cpu = FakeClock()
    laps = Laps(clock=clock, cpu=cpu)
    for _ in range(2):
        with laps("attack"):
            cpu.wait(3.0)
        cpu.wait(1.0)
        laps.step()
        cpu.wait(0.5)
    summary = laps.summary()
    assert [phase.cpu for phase in (*summary.phases, summary.unaccounted, summary.step)] == [3.0, 1.5, 4.5]
    assert "cpu" in str(summary)
    assert Laps().summary().step.cpu is None


Block = st.deferred(lambda: st.lists(st.integers(1, 9) | st.tuples(st.sampled_from("ab"), Block), max_size=4))


@settings(max_examples=40)
@given(st.lists(Block, max_size=12))
def test_whatever_a_step_does_the_parts_sum_to_the_whole(steps):
    clock = FakeClock()
    laps = Laps(clock=clock)

    def run(block) -> None:
        for item in block:
            if isinstance(item, int):
                clock.wait(item)
            else:
                with laps(item[0]):
                    run(item[1])

    laps.step()
    for block in steps:
        run(block)
        laps.step()
    summary = laps.summary()
    tops = [phase for phase in summary.phases if phase.depth == 0]
    assert sum(phase.total for phase in tops) + summary.unaccounted.total == summary.step.total
    assert summary.step.total + summary.apart_seconds == clock.now
    assert summary.step.count + summary.apart == len(steps)
    assert sum(phase.own for phase in (*summary.phases, summary.unaccounted)) == summary.step.total
    assert sum(map(sum, summary.series.seconds)) == summary.step.total
