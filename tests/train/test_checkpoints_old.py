"""Runs of Lapwing 0.1, whose checkpoints are Orbax's: they are opened, shown, compared and replaced by new ones.

`lapwing-0.1-run.zip` is the folder of a run that version 0.1 wrote: six steps, two checkpoints of the last one.
"""

import dataclasses
import sys
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.journal import Run
from lapwing.task import Task
from lapwing.train import CheckpointError, Checkpoints, FitConfig, config_from, fit

NAME = "20261101-120000-line-aaaa"
PARAMS = {
    "params/empty": np.zeros((0, 2), np.float32),
    "params/layer.1%2Fbias": np.zeros((), jnp.bfloat16),
    "params/w": np.array([0.44096881, -0.40937683], np.float32),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zipfile.ZipFile(Path(__file__).with_name("lapwing-0.1-run.zip")).extractall(tmp_path)
    return tmp_path / NAME / "checkpoints"


def test_its_arrays_are_read_under_their_present_names(folder: Path):
    checkpoints = Checkpoints(folder)
    first, second = checkpoints.all()
    assert [(each.step, each.serial) for each in (first, second)] == [(6, 1), (6, 2)]
    arrays = checkpoints.arrays(second)
    assert arrays.keys() == second.leaves.keys()
    assert arrays["step"] == 6
    for name, array in PARAMS.items():
        assert arrays[name].dtype == array.dtype, name
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


def resume(folder: Path, **changes):
    params = {"empty": np.zeros((0, 2), np.float32), "layer.1/bias": jnp.bfloat16(0), "w": jnp.zeros(2)}
    task = Task(
        init=lambda key: params,
        data=lambda key, step: jnp.ones(2),
        loss=lambda params, batch: (jnp.sum((params["w"] - batch) ** 2), {}),
    )
    with Run.reopen(folder.parent) as run:
        config = dataclasses.replace(config_from(FitConfig, run.config), **changes)
        return fit(task, config, run, quiet=True, allow_change=True)


def test_its_run_is_resumed(folder: Path):
    """The config of the run, the state and what the loop knew: all under their present names."""
    same = resume(folder)
    assert (same.ended, int(same.state.step)) == ("finished", 6)
    np.testing.assert_array_equal(same.params["w"], PARAMS["params/w"])
    assert float(same.state.controls["learning_rate"]) == np.float32(0.1)
    later = resume(folder, steps=8)
    assert int(later.state.step) == 8
    assert int(later.state.optimizer.task[0].count) == 8
    assert not np.array_equal(later.params["w"], PARAMS["params/w"])
    assert "the config changed: steps 6 → 8" in Run.open(folder.parent).story


def test_what_the_rules_knew_is_read(folder: Path):
    record = Checkpoints(folder).find(2).record
    assert record["trend"]["best_step"] == record["rules"]["Plateau"] == 6
    assert record["trend"]["best"] == record["trend"]["loss"] == pytest.approx(2.2, rel=1e-4)
    assert record["controls"].keys() == {"learning_rate", "clip", "weight_decay", "penalties"}


def test_it_is_compared_with_others(folder: Path, capsys):
    assert main(["compare", NAME, NAME, "--params", "--runs", str(folder.parents[1])]) == 0
    assert "The parameters never differ, at the checkpoints of step 6" in " ".join(
        capsys.readouterr().out.split()
    )


def test_another_state_is_refused_and_both_versions_are_mentioned(folder: Path):
    checkpoints = Checkpoints(folder)
    with pytest.raises(
        CheckpointError, match=r"step is int32\[\] in .* and missing in .* the version of Lapwing that"
    ):
        checkpoints.newest_sound({"w": jnp.zeros(2)})


def test_new_ones_replace_the_old_ones(folder: Path):
    checkpoints = Checkpoints(folder)
    for step in (7, 8):
        checkpoints.save({"w": jnp.ones(step)}, step, {})
    checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == [
        "000003-step-7.safetensors",
        "000004-step-8.safetensors",
    ]


def test_without_orbax_it_says_what_to_install(folder: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    checkpoints = Checkpoints(folder)
    message = "was written by Lapwing 0.1 and needs Orbax; install it with `pip install orbax-checkpoint`$"
    with pytest.raises(CheckpointError, match=message):
        checkpoints.arrays(checkpoints.all()[-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damage_is_named_and_the_one_before_is_used(folder: Path):
    checkpoints = Checkpoints(folder)
    newest = checkpoints.find(2)
    flip(newest.path / "arrays" / "manifest.ocdbt")
    with pytest.raises(
        CheckpointError, match=r"step-6 is damaged: its file arrays/manifest.ocdbt is missing or was"
    ):
        checkpoints.arrays(newest)
    flip(newest.path / "checkpoint.json")
    with pytest.raises(
        CheckpointError, match=r"step-6 is damaged: its checkpoint.json was changed after it was"
    ):
        checkpoints.find(2)
    (newest.path / "checkpoint.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"damaged: its checkpoint.json cannot be read \(.*No such file or dir"
    ):
        checkpoints.find(2)
    assert [each.serial for each in checkpoints.all()] == [1]


def test_what_orbax_cannot_read_is_named(folder: Path, monkeypatch):
    def restore(*_args, **_options):
        raise KeyError("NOT_FOUND\nand a long story")

    monkeypatch.setattr("orbax.checkpoint.Checkpointer.restore", restore)
    checkpoints = Checkpoints(folder)
    with pytest.raises(
        CheckpointError, match=r"step-6 is damaged: Orbax cannot read its arrays \('NOT_FOUND"
    ):
        checkpoints.arrays(checkpoints.find(2))
