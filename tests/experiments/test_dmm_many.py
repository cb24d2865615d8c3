"""Machines that learn side by side are computed by a program of their own, and learn what each learns alone."""

import dataclasses

import numpy as np
import pytest

from lapwing.experiments import dmm_feedforward, dmm_lite, superfluid
from lapwing.train import fit, fit_many

SMALL = {"steps": 4, "laps_every": 0}


@pytest.mark.parametrize(
    ("experiment", "configs"),
    [
        (dmm_lite, [dmm_lite.Config(cycles=12, spread=0.02, seed=seed, **SMALL) for seed in (0, 1)]),
        pytest.param(
            dmm_feedforward,
            [dmm_feedforward.Config(cycles=12, seed=seed, **SMALL) for seed in (0, 1)],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            superfluid,
            [superfluid.Config(cycles=11, learning_rate=rate, **SMALL) for rate in (0.01, 0.02)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["dmm-lite", "dmm-feedforward", "superfluid"],
)
def test_machines_side_by_side_learn_what_each_learns_alone(experiment, configs):
    asked = []

    def build(config):
        task = experiment.build(config)

        def losses(params, batch):
            asked.append(len(params))
            return task.losses(params, batch)

        return dataclasses.replace(task, losses=losses)

    together = fit_many(build, configs, [None] * len(configs))
    assert set(asked) == {2}  # Otherwise `vmap` would be compared with itself.
    for config, found in zip(configs, together, strict=True):
        alone = fit(experiment.build(config), config, quiet=True)
        assert set(found.metrics) == set(alone.metrics)
        for name in alone.metrics:
            np.testing.assert_allclose(found.metrics[name], alone.metrics[name], rtol=2e-4, err_msg=name)
