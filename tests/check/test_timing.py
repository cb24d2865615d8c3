"""The times of two journals (docs/story.md), and clocks that stop too early."""

import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, honest_timing
from lapwing.timing import Laps

ATTACK = {
    "step": [2.5001, 2.4327, 2.3787, 2.3610, 2.3688],
    "setup": [0.0078, 0.0004, 0.0059, 0.0059, 0.0058],
    "attack": [2.4908, 2.4310, 2.3715, 2.3536, 2.3617],
    "forward": [0.0005, 0.0003, 0.0003, 0.0004, 0.0004],
    "backward": [0.0006, 0.0006, 0.0005, 0.0005, 0.0005],
    "update": [0.0004, 0.0003, 0.0003, 0.0004, 0.0003],
}
TREES = {
    "step": [38.60, 20.85, 20.28],
    "gradient": [19.97, 19.81, 19.25],
    "optimizer": [18.30, 0.708, 0.706],
    "apply": [0.333, 0.333, 0.331],
}


def test_the_phases_of_adversarial_training_add_up():
    assert honest_timing(ATTACK).message == "5 phases add up to 100% of 5 steps"


def test_a_first_optimizer_update_in_the_average_is_found():
    with pytest.raises(
        CheckError,
        match=r"the first optimizer took 18\.3 s and the others 707 ms: the first call is included",
    ):
        honest_timing(TREES)
    honest_timing({name: times[1:] for name, times in TREES.items()})


def test_phases_that_add_up_to_too_little_or_too_much_are_found():
    missing = {name: times for name, times in ATTACK.items() if name != "attack"}
    with pytest.raises(
        CheckError, match=r"the phases add up to 0% of the step, so 100% of the time is not accounted for"
    ):
        honest_timing(missing)
    with pytest.raises(CheckError, match=r"the phases add up to 110% of the step, more than all of it"):
        honest_timing({"step": [1.0] * 4, "a": [0.6] * 4, "b": [0.5] * 4})


def laps(seconds_between: float) -> Laps:
    now = [0.0]
    timed = Laps(clock=lambda: now[0])
    for _ in range(4):
        with timed("forward"):
            now[0] += 1.0
        now[0] += seconds_between
        timed.step()
    return timed


def test_laps_their_summary_and_their_json_are_all_understood():
    for form in (laps(0.0), laps(0.0).summary(), json.loads(json.dumps(laps(0.0).summary().to_json()))):
        assert honest_timing(form).facts == {"share": 1.0, "steps": 3}
    with pytest.raises(
        CheckError, match=r"so 50% of the time is not accounted for \(the largest phase, forward, has 50%\)"
    ):
        honest_timing(laps(1.0))


@pytest.mark.optimized
def test_a_clock_that_does_not_wait_for_the_device_is_found():
    x = jnp.ones((300, 300))
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 10, lambda i, y: y @ x / 300, x))
    jax.block_until_ready(work(x))
    started = time.perf_counter()
    result = work(x)
    claimed = time.perf_counter() - started
    jax.block_until_ready(result)
    with pytest.raises(CheckError, match="the clock stopped before the device was done"):
        honest_timing(work, x, claimed_s=min(claimed, 1e-4))
    # The slowest of some, since a busy machine may be slower the next time.
    honest_timing(work, x, claimed_s=max(honest_timing(work, x).facts["ready_s"] for _ in range(4)))


def test_a_claim_with_the_first_call_in_it_is_found():
    slept = []

    def work(x):
        time.sleep(0.0 if slept else 0.3)
        slept.append(1)
        return np.sum(x)

    with pytest.raises(CheckError, match="a first call, which traces and compiles, among the timed ones"):
        honest_timing(work, np.ones(3), claimed_s=0.1)


def test_what_is_no_timing_is_refused():
    with pytest.raises(
        CheckInputError, match="expected Laps, a summary of laps, a dict of seconds by phase or a function"
    ):
        honest_timing(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        CheckInputError, match="expected the times of the whole step under 'step', found a, b; name it"
    ):
        honest_timing({"a": [1.0], "b": [1.0]})
    with pytest.raises(CheckInputError, match="expected as many times of every phase as of 'step'"):
        honest_timing({"step": [1.0, 2.0], "a": [1.0]})
    with pytest.raises(CheckInputError, match="no step after the first was timed"):
        honest_timing(Laps())
