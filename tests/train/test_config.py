import pytest

from lapwing.train import ConfigError, FitConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps should be at least 1, but is 0"),
        ({"steps_per_call": -1}, "steps_per_call should be at least 1, but is -1"),
        ({"log_every": 0}, "log_every should be at least 1, but is 0"),
        ({"evaluate_every": -1}, "evaluate_every should be at least 0, but is -1"),
        ({"laps_every": -5}, "laps_every should be at least 0, but is -5"),
        ({"seed": -1}, "seed should be from 0 to 2^63 - 1, but is -1"),
        ({"seed": 2**63}, "seed should be from 0 to 2^63 - 1, but is 9223372036854775808"),
        ({"learning_rate": 0.0}, "learning_rate should be a positive number, but is 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate should be a positive number, but is nan"),
        ({"learning_rate": float("inf")}, "learning_rate should be a positive number, but is inf"),
        ({"clip": 0.0}, "clip should be a positive number, or inf for none, but is 0.0"),
        ({"clip": float("nan")}, "clip should be a positive number, or inf for none, but is nan"),
    ],
)
def test_options_that_make_no_sense_are_named(options, message: str):
    with pytest.raises(ConfigError) as error:
        FitConfig(**options)
    assert str(error.value) == message
