import math

import numpy as np
import pytest

from lapwing.train import ConfigError, FitConfig, Schedule, fit
from lapwing.train._optimizer import make_schedule

from .tasks import line


def factors(config: FitConfig) -> list[float]:
    schedule = make_schedule(None, config)
    return [float(schedule(step)) for step in range(config.steps)]


def test_constant():
    assert factors(FitConfig(steps=5)) == [1.0] * 5


def test_a_warm_up_reaches_the_full_rate():
    found = factors(FitConfig(steps=6, schedule=Schedule(warmup=4)))
    np.testing.assert_allclose(found, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rtol=1e-6)


def test_cosine_goes_from_one_to_its_floor():
    found = factors(FitConfig(steps=11, schedule=Schedule("cosine", floor=0.2)))
    expected = [0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * step / 10)) for step in range(11)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_points_are_joined_by_straight_lines():
    found = factors(FitConfig(steps=8, schedule=Schedule("points", points=((1, 1.0), (5, 0.2), (6, 2.0)))))
    np.testing.assert_allclose(found, [1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 2.0, 2.0], rtol=1e-6)


def test_the_rate_of_every_step_is_told():
    config = FitConfig(steps=10, learning_rate=0.1, laps_every=0, schedule=Schedule("cosine", warmup=3))
    result = fit(line(), config, quiet=True)
    np.testing.assert_allclose(
        result.metrics["effective_learning_rate"], 0.1 * np.asarray(factors(config)), rtol=1e-6
    )


def test_a_plateau_cuts_the_rate_down_to_its_floor(tmp_path):
    schedule = Schedule("plateau", patience=20, cut=0.5, floor=0.2)
    task = line(loss=lambda params, batch: (1.0 + 0.0 * params["b"], {}))
    config = FitConfig(steps=100, learning_rate=0.1, laps_every=0, log_every=10, schedule=schedule)
    rates = fit(task, config, quiet=True).metrics["effective_learning_rate"]
    # The first window finds the first best, after ten steps.
    np.testing.assert_allclose(rates, [0.1] * 30 + [0.05] * 20 + [0.025] * 20 + [0.02] * 30, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "points"},
            "schedule.points should be pairs of a step and a factor of at least 0, the steps rising",
        ),
        ({"kind": "points", "points": ((5, 1.0), (5, 2.0))}, "schedule.points should be pairs"),
        ({"warmup": -1}, "schedule.warmup should be at least 0, but is -1"),
        ({"cut": 1.5}, "schedule.cut should be between 0 and 1, but is 1.5"),
    ],
)
def test_bad_schedules_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**options)
