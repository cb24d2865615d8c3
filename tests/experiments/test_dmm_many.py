"""Machines that train in one batch learn what each learns alone."""

import dataclasses

import numpy as np
import pytest

from lapwing.experiments import dmm_feedforward, dmm_lite, superfluid
from lapwing.train import fit, fit_many

SMALL = {"steps": 4, "laps_every": 0}


@pytest.mark.slow  # In every run: programs of machines in a batch, tests/dmm/test_program.py.
@pytest.mark.parametrize(
    ("experiment", "configs"),
    [
        (dmm_lite, [dmm_lite.Config(cycles=12, spread=0.02, seed=seed, **SMALL) for seed in (0, 1)]),
        (dmm_feedforward, [dmm_feedforward.Config(cycles=12, seed=seed, **SMALL) for seed in (0, 1)]),
        (superfluid, [superfluid.Config(cycles=11, learning_rate=rate, **SMALL) for rate in (0.01, 0.02)]),
    ],
    ids=["dmm-lite", "dmm-feedforward", "superfluid"],
)
def test_machines_in_a_batch_learn_what_each_learns_alone(experiment, configs):
    batches = []

    def build(config):
        task = experiment.build(config)

        def losses(params, batch):
            batches.append(len(params))
            return task.losses(params, batch)

        return dataclasses.replace(task, losses=losses)

    together = fit_many(build, configs, [None] * len(configs))
    assert set(batches) == {2}  # Otherwise `vmap` would be compared with itself.
    for config, found in zip(configs, together, strict=True):
        alone = fit(experiment.build(config), config, quiet=True)
        assert set(found.metrics) == set(alone.metrics)
        for name in alone.metrics:
            np.testing.assert_allclose(found.metrics[name], alone.metrics[name], rtol=2e-4, err_msg=name)
