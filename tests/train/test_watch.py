import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.train import FitConfig, Rollback, Schedule, Stop
from lapwing.train._watch import Trouble, Watch


def see(watch: Watch, config: FitConfig, losses, norms=None, first: int = 0, skipped=None) -> Trouble | None:
    losses = np.asarray(losses, float)
    norms = np.ones(len(losses)) if norms is None else np.asarray(norms, float)
    skipped = np.zeros(len(losses), bool) if skipped is None else np.asarray(skipped, bool)
    return watch.see(config, first, losses, norms, skipped)


def after_a_window(config: FitConfig, losses) -> Watch:
    watch = Watch()
    assert see(watch, config, losses) is None
    watch.end_window(config, len(losses))
    return watch


def test_the_best_is_the_lowest_smoothed_loss():
    config = FitConfig(smooth=1)
    watch = Watch()
    bests = []
    for done, loss in enumerate([5.0, 3.0, 4.0, 1.0, 2.0], start=1):
        see(watch, config, [loss] * 50, first=50 * (done - 1))
        bests.append(watch.end_window(config, 50 * done))
    assert bests == [True, True, False, True, False]
    assert (watch.best, watch.best_step) == (1.0, 200)


def test_smoothing_takes_about_as_long_as_asked():
    config = FitConfig(smooth=100)
    watch = after_a_window(config, [1.0] * 10)
    for _ in range(10):
        see(watch, config, [0.0] * 10)
        watch.end_window(config, 0)
    assert watch.smoothed == pytest.approx(math.exp(-1), rel=1e-6)


def test_a_loss_that_is_not_finite_is_trouble_at_its_step():
    watch = after_a_window(FitConfig(), [1.0] * 5)
    assert see(watch, FitConfig(), [1.0, 2.0, math.inf, math.nan], first=5) == Trouble(
        7, "the loss was not finite"
    )
    assert watch.losses == [1.0, 2.0]


def test_a_loss_far_above_its_best_is_trouble_after_its_patience():
    config = FitConfig(rollback=Rollback(factor=3.0, patience=3))
    watch = after_a_window(config, [1.0] * 10)
    assert see(watch, config, [5.0, 5.0, 1.0, 5.0, 5.0], first=10) is None
    assert see(watch, config, [5.0, 1.0], first=15) == Trouble(
        15, "the loss was above 3 times its best (1) for 3 steps"
    )


def test_a_negative_loss_is_measured_by_its_size():
    config = FitConfig(rollback=Rollback(factor=3.0, patience=1))
    watch = after_a_window(config, [-1.0] * 10)
    assert see(watch, config, [0.9]) is None
    assert see(watch, config, [1.1], first=11) == Trouble(
        11, "the loss was above 3 times its best (-1) for 1 steps"
    )


def test_a_spike_of_the_gradient_is_trouble():
    config = FitConfig(rollback=Rollback(spike=10.0))
    watch = after_a_window(config, [1.0] * 10)
    assert see(watch, config, [1.0, 1.0], norms=[9.0, 11.0], first=10) == Trouble(
        11, "the gradient was above 10 times its usual norm (1)"
    )


def test_before_the_first_window_nothing_is_too_high():
    config = FitConfig(rollback=Rollback(factor=2.0, patience=1, spike=2.0))
    assert see(Watch(), config, [1.0, 100.0], norms=[1.0, 100.0]) is None


def test_a_first_window_that_rises_is_not_the_best():
    """A run that begins with a rate far too high: the start is what to go back to."""
    watch, config = Watch(), FitConfig()
    see(watch, config, [1.0, 2.0, 5.0, 9.0])
    assert not watch.end_window(config, 4)
    assert (watch.best, watch.best_step) == (1.5, 0)


def test_updates_that_are_left_out_are_counted_and_too_many_on_end_are_trouble():
    watch, config = Watch(), FitConfig(rollback=Rollback(patience=3))
    assert see(watch, config, [1, 1, 1, 1], skipped=[1, 1, 0, 1]) is None
    assert watch.skipped == 3
    assert see(watch, config, [1, 1, 1], skipped=[1, 1, 1], first=4) == Trouble(
        5, "no update was finite for 3 steps"
    )
    assert watch.skipped == 5


def test_the_earliest_trouble_counts():
    config = FitConfig(rollback=Rollback(spike=10.0))
    watch = after_a_window(config, [1.0] * 10)
    found = see(watch, config, [1.0, math.nan], norms=[99.0, 1.0], first=10)
    assert found == Trouble(10, "the gradient was above 10 times its usual norm (1)")


def test_a_plateau_is_cut_after_its_patience_and_again_after_another():
    config = FitConfig(smooth=1, schedule=Schedule("plateau", patience=100))
    watch, cuts = Watch(), []
    for done in range(50, 501, 50):
        see(watch, config, [1.0] * 50)
        watch.end_window(config, done)
        if watch.should_cut(config, done):
            cuts.append(done)
    assert cuts == [150, 250, 350, 450]


def test_without_a_plateau_schedule_nothing_is_cut():
    assert not Watch().should_cut(FitConfig(), 10**6)


def test_waiting_in_vain():
    watch = Watch(best=1.0, best_step=100)
    config = FitConfig(stop=Stop(patience=50))
    assert [watch.waited_in_vain(config, done) for done in (149, 150)] == [False, True]
    assert not watch.waited_in_vain(FitConfig(), 10**6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 7.0, math.nan]), min_size=1, max_size=40),
    st.lists(st.integers(1, 10), min_size=1, max_size=40),
    st.booleans(),
)
def test_the_pieces_in_which_numbers_arrive_do_not_matter(losses, pieces, save):
    """Nor does being written to JSON and read back between them, which is what a killed run does."""
    config = FitConfig(log_every=8, smooth=5, rollback=Rollback(factor=2.0, patience=3))

    def run(sizes):
        watch, at = Watch(), 0
        for size in sizes:
            while size and at < len(losses):
                part = min(size, 8 - at % 8, len(losses) - at)
                if trouble := see(watch, config, losses[at : at + part], first=at):
                    return trouble, watch.losses
                at, size = at + part, size - part
                if at % 8 == 0:
                    watch.end_window(config, at)
            if save:
                watch = Watch.from_json(json.loads(json.dumps(watch.to_json())))
        return watch.to_json()

    assert str(run([1] * len(losses))) == str(run([*pieces, len(losses)]))
