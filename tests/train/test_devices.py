import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.journal import from_json
from lapwing.task import Rounds, TaskError, Turn
from lapwing.train import ConfigError, FitConfig, fit

from .tasks import line

LINE = FitConfig(steps=4, learning_rate=0.1, laps_every=0)


def on_eight(tmp_path: Path, wanted: str) -> Any:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("on_devices.py"), tmp_path, wanted],
        capture_output=True,
        text=True,
        timeout=600,
        env={
            **os.environ,
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
        },
    )
    assert done.returncode == 0, done.stderr
    return from_json(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Any:
    return on_eight(tmp_path_factory.mktemp("runs"), "few")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Any:
    return on_eight(tmp_path_factory.mktemp("runs"), "runs")


def assert_close(ours, theirs, rtol: float = 1e-4) -> None:
    assert ours["ended"] == theirs["ended"] == "finished"
    for part in ("metrics", "evaluation"):
        assert ours[part].keys() == theirs[part].keys()
        for name in ours[part]:
            np.testing.assert_allclose(ours[part][name], theirs[part][name], rtol, 1e-6, err_msg=name)


def test_several_devices_give_the_numbers_of_one(found):
    whole = found["adding"].pop("None")
    assert len(whole["metrics"]["loss"]) == 40
    for result in found["adding"].values():
        assert_close(result, whole)


@pytest.mark.slow
def test_a_first_nan_on_several_devices_is_located(runs):
    for (event,) in runs["watched"]:
        assert (event["watcher"], event["step"]) == ("not_finite", 23)
        assert event["evidence"]["operation"] == "select_n"
        assert event["evidence"]["place"].startswith("on_devices.py:")


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices(runs):
    assert_close(runs["moved"]["moved"], runs["moved"]["whole"])
    resumed = [event["step"] for event in runs["moved"]["events"] if event["event"] == "resumed"]
    assert len(resumed) == 2
    assert 0 < resumed[0] < resumed[1] < 20


@pytest.mark.slow
def test_a_run_on_several_devices_is_steered_and_goes_back(runs):
    ours, theirs = runs["steered"]
    assert_close(ours, theirs)
    np.testing.assert_allclose(ours["metrics"]["effective_learning_rate"][1:20], 0.05)
    assert ours["metrics"]["effective_learning_rate"][-1] < 0.04


def test_each_device_makes_and_reads_its_part_of_the_batch(found):
    """Of 16 sequences of 6 numbers, each of 8 devices draws 2, and goes through the loop with them."""
    shapes = set(re.findall(r"\w+\[[\d,]*\]", found["split"]))
    assert {"f32[6,2,2]", "f32[2,8]"} <= shapes
    assert not {"u32[6,16]", "f32[6,16]", "f32[16,8]", "f32[16,24]"} & shapes
    assert "all-reduce" in found["split"]


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["thinker", "adversarial"])
def test_experiments_with_a_memory_on_several_devices(tmp_path: Path, experiment: str):
    results = on_eight(tmp_path, "experiments")[experiment]
    assert_close(results["4"], results["None"], rtol=1e-3)


def test_too_many_devices():
    with pytest.raises(
        ConfigError, match="devices should be from 1 to 1, but is 9; to split a CPU, set XLA_FLAGS"
    ):
        fit(line(), LINE, devices=9, quiet=True)


def test_a_batch_that_is_not_a_multiple_of_the_devices(found):
    assert found["uneven"] == (
        "a batch of 10 cannot be split evenly over 4 devices (batch[0], axis 1); make it a multiple of 4, or use "
        "another number of devices"
    )


def test_a_batch_without_such_an_axis():
    task = line(data=lambda key, step: {"x": np.zeros((8, 3), np.float32), "step": step})
    with pytest.raises(
        TaskError, match=r"batch\['step'\] has shape \(\) and no axis 0 to be split over devices"
    ):
        fit(task, LINE, devices=1, quiet=True)


def test_a_batch_that_cannot_be_split():
    task = line(batch_axis=None)
    with pytest.raises(
        TaskError, match="nothing in the batch of this task can be split over devices; train it on one device"
    ):
        fit(task, LINE, devices=1, quiet=True)


def test_rounds_are_for_one_device():
    task = line(rounds=Rounds(2, lambda params, optimizer: Turn(params, optimizer, "", {})))
    with pytest.raises(TaskError, match="a task with rounds is trained on one device; leave out devices"):
        fit(task, LINE, devices=1, quiet=True)
