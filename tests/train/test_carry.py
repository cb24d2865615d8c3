"""Packed leaves and metrics in a log, as on a GPU: the same bits as without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.train import Checkpointing, FitConfig, Rollback, Rule, SetLearningRate, fit, fit_many
from lapwing.train import _carry as carry
from lapwing.train._carry import Packing
from lapwing.train._transfer import Calls, Pace

from .tasks import line, same_bits

TREE = {
    "a": jnp.arange(6.0).reshape(2, 3),
    "b": jnp.int32(7),
    "c": [jnp.ones((), bool), jnp.zeros((0,)), jnp.uint32([1, 2])],
    "d": jnp.float32(-0.0),
    "e": jnp.arange(300.0),
    "f": jnp.uint32([[3]]),
    "g": jnp.array(jnp.nan),
}


@pytest.mark.parametrize(("most", "arrays"), [(0, 9), (256, 5), (1000, 4)])
def test_packing_keeps_every_bit(most, arrays):
    packing = Packing(TREE, most)
    small, large = jax.jit(packing.pack)(TREE)
    assert len(small) + len(large) == arrays
    again = packing.unpack(small, large)
    assert same_bits(TREE, again)
    assert jax.tree.map(jnp.shape, TREE) == jax.tree.map(jnp.shape, again)


class Cut(Rule):
    """Changes the state where a window ends, so that what was made ahead must be dropped."""

    def on_window(self, state, window):
        return state, [SetLearningRate(0.05, "a test")] if window.done in (64, 144, 264) else []


def runs(**options):
    accident = line(
        data=lambda key, step: jnp.where(
            jax.random.uniform(key) < 2e-3, jnp.nan, jax.random.normal(key, (8, 3))
        ),
        evaluate=lambda params, key: {"w": params["w"][0]},
    )
    config = FitConfig(
        steps=700,
        learning_rate=0.1,
        log_every=8,
        evaluate_every=40,
        rollback=Rollback(times=9),
        checkpoint=Checkpointing(every=100),
        **options,
    )
    alone = fit(accident, config, rules=[Cut()], quiet=True)
    many = fit_many(lambda _: line(), [FitConfig(steps=20, seed=seed) for seed in range(2)], [None] * 2)
    return [alone, *many]


@pytest.mark.slow
def test_packed_runs_that_go_ahead_have_the_bits_of_plain_ones(monkeypatch):
    plain = runs(laps_every=7)
    monkeypatch.setattr(carry, "_default_most", lambda: 256)
    monkeypatch.setattr("lapwing.train._transfer._goes_ahead", lambda: True)
    made = {"accepted": 0, "dropped": 0}
    accept, drop = Calls.accept_ahead, Calls.drop_ahead

    def accepted(calls):
        counts = accept(calls)
        made["accepted"] += len(counts)
        return counts

    def dropped(calls):
        made["dropped"] += len(calls._ahead)
        drop(calls)

    monkeypatch.setattr(Calls, "accept_ahead", accepted)
    monkeypatch.setattr(Calls, "drop_ahead", dropped)
    packed = runs(laps_every=7)
    assert made["accepted"] > 50
    assert made["dropped"] > 0
    assert plain[0].rollbacks == packed[0].rollbacks > 0
    for a, b in zip(plain, packed, strict=True):
        assert same_bits(a.state, b.state)
        assert a.metrics.keys() == b.metrics.keys()
        for name in a.metrics:
            np.testing.assert_array_equal(a.metrics[name], b.metrics[name])


def test_the_best_survives_what_changes_the_state_at_the_same_window(monkeypatch):
    """A leaf that is too large to be packed, a new best, calls made ahead and dropped, and a return to that best."""
    monkeypatch.setattr("lapwing.train._transfer._goes_ahead", lambda: True)
    monkeypatch.setattr(Pace, "keep", lambda pace, _: setattr(pace, "every", 8))
    task = line(
        init=lambda key: {"w": jnp.zeros(300), "b": jnp.float32(0.5)},
        data=lambda key, step: jnp.where(step == 70, jnp.nan, jax.random.normal(jax.random.key(0), (8, 300))),
    )
    config = FitConfig(
        steps=72, learning_rate=1e-3, log_every=8, laps_every=0, rollback=Rollback(times=1), smooth=1
    )
    result = fit(task, config, rules=[Cut()], quiet=True)
    assert (result.ended, result.rollbacks) == ("failed", 1)  # The accident happens at that step again.
    assert np.isfinite(result.params["w"]).all()


@pytest.mark.slow
def test_a_window_longer_than_the_log_is_fetched_in_parts():
    config = FitConfig(steps=1500, log_every=5000, learning_rate=0.1, laps_every=0)
    small = FitConfig(steps=1500, log_every=10, learning_rate=0.1, laps_every=0)
    one, other = (fit(line(), each, quiet=True) for each in (config, small))
    np.testing.assert_array_equal(one.metrics["loss"], other.metrics["loss"])


def test_the_host_looks_seldom_at_short_calls_and_always_at_long_ones(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("lapwing.train._transfer.time.perf_counter", lambda: now[0])
    for seconds, looks in ((0.1, 100), (1e-5, 6)):
        pace, seen = Pace(), []
        monkeypatch.setattr("lapwing.train._transfer._look", lambda x, seen=seen: seen.append(1) or x)
        for _ in range(100):
            now[0] += seconds
            pace.keep(jnp.zeros(1))
        assert len(seen) == looks
