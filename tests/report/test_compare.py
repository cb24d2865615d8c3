import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.journal import Run, to_json
from lapwing.report import ComparisonError, compare_params, compare_runs

from .runs import falling, started


def run_with(folder: Path, *rows: dict[str, float], **settings: Any) -> Run:
    with Run.create("adding", settings, runs_dir=folder, device="cpu") as run:
        run.log(*rows)
    return run


def rows_of(**columns: list[float]) -> list[dict[str, float]]:
    return [
        {"step": step, **dict(zip(columns, row, strict=True))}
        for step, row in enumerate(zip(*columns.values(), strict=True))
    ]


def test_equal_runs_never_part(tmp_path: Path):
    losses = falling(200)
    losses[[5, 6]] = math.nan, math.inf
    found = compare_runs(started(tmp_path, losses), started(tmp_path, losses))
    assert found.differs_at is None
    assert (found.steps, found.first_step, found.last_step) == (200, 0, 199)
    assert set(found.compared) == {"loss", "gradient_norm", "clipped_norm", "learning_rate"}
    assert (found.config, found.environment) == ({}, {})


@pytest.mark.parametrize("other", [np.nextafter(0.5, 1), math.nan, -math.inf, -0.5])
def test_the_last_bit_of_one_value_is_found(tmp_path: Path, other: float):
    losses = np.full(100, 0.5)
    changed = losses.copy()
    changed[77] = other
    found = compare_runs(started(tmp_path, losses), started(tmp_path, changed))
    assert found.differs_at == 77
    (difference,) = found.metrics
    np.testing.assert_equal(
        (difference.name, difference.a, difference.b, difference.difference),
        ("loss", 0.5, other, abs(0.5 - other)),
    )


def test_each_metric_has_its_first_step_and_the_first_comes_first(tmp_path: Path):
    a = rows_of(accuracy=[0.0, 0.0, 0.5, 0.5], loss=[4.0, 2.0, 1.0, 1.0], learning_rate=[0.1, 0.1, 0.1, 0.1])
    b = rows_of(accuracy=[0.0, 0.0, 0.4, 0.5], loss=[4.0, 2.0, 0.5, 1.0], learning_rate=[0.1, 0.2, 0.1, 0.1])
    found = compare_runs(run_with(tmp_path, *a), run_with(tmp_path, *b))
    assert [(each.name, each.step) for each in found.metrics] == [
        ("learning_rate", 1),
        ("loss", 2),
        ("accuracy", 2),
    ]
    assert found.metrics[1].difference == 0.5
    assert found.metrics[1].relative == 0.5


def test_only_what_both_have_logged_is_compared(tmp_path: Path):
    a = run_with(tmp_path, *rows_of(loss=[3.0, 2.0, 1.0], only_a=[1.0, 1.0, 1.0]))
    b = run_with(
        tmp_path,
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": 1.0},
        {"step": 2, "eval_loss": 0.5},
        {"step": 9, "loss": 0.0},
    )
    found = compare_runs(a, b)
    assert found.differs_at is None
    assert (found.steps, found.first_step, found.last_step, found.last_steps) == (2, 1, 2, (2, 9))
    assert (found.only_in_a, found.only_in_b) == (("only_a",), ("eval_loss",))


def test_what_a_rollback_undid_does_not_count(tmp_path: Path):
    straight = run_with(tmp_path, *rows_of(loss=[3.0, 2.0, 1.0]))
    with Run.create("adding", {}, runs_dir=tmp_path, device="cpu") as back:
        back.log(*rows_of(loss=[3.0, 7.0, 8.0]))
        back.back_to(1)
        back.log({"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0})
    assert compare_runs(straight, back).differs_at is None


def test_times_are_never_compared(tmp_path: Path):
    a, b = (run_with(tmp_path, {"step": 0, "loss": 1.0, "time": when}) for when in (1.0, 2.0))
    assert compare_runs(a, b).differs_at is None


def test_what_differs_in_settings_and_surroundings_is_named(tmp_path: Path):
    a = run_with(tmp_path, {"step": 0, "loss": 1.0}, seed=1, model={"width": 8}, x=math.nan)
    b = run_with(tmp_path, {"step": 0, "loss": 1.0}, seed=2, model={"width": 9}, x=math.nan)
    about = b.environment
    b.put(
        "environment.json",
        to_json({**about, "device": "H200", "versions": {**about["versions"], "jax": "0.11"}}),
    )
    found = compare_runs(a, b)
    assert found.config == {"seed": (1, 2), "model.width": (8, 9)}
    assert found.environment == {
        "device": ("cpu", "H200"),
        "versions.jax": (about["versions"]["jax"], "0.11"),
    }


def test_runs_without_a_common_step_are_an_error(tmp_path: Path):
    a, b = run_with(tmp_path, {"step": 0, "loss": 1.0}), run_with(tmp_path, {"step": 1, "loss": 1.0})
    with pytest.raises(
        ComparisonError, match=f"{a.name} and {b.name} have logged no metric at the same step; compare two"
    ):
        compare_runs(a, b)
    with pytest.raises(ComparisonError, match="have logged no metric at the same step"):
        compare_runs(a, run_with(tmp_path))


def test_the_first_checkpoint_with_other_parameters_is_found():
    same = {
        "params/w": np.array([[1.0, math.nan], [3.0, 4.0]], np.float32),
        "params/b": np.arange(3),
        "params/c": np.ones(2),
    }
    other = {
        **same,
        "params/w": np.array([[1.0, math.nan], [3.5, 4.25]], np.float32),
        "params/b": np.array([0, 1, 9]),
    }
    read = []

    def checkpoints():
        for step, b in ((10, same), (20, other), (30, same)):
            read.append(step)
            yield step, same, b

    found = compare_params(checkpoints())
    assert (found.differs_at, found.steps, read) == (20, (10, 20), [10, 20])
    assert [(leaf.name, leaf.a, leaf.b, leaf.difference) for leaf in found.leaves] == [
        ("params/b", 2.0, 9.0, 7.0),
        ("params/w", 3.0, 3.5, 0.5),
    ]
    assert compare_params([(10, same, same), (20, same, same)]).differs_at is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint32", "int64", "bool"])
def test_parameters_of_every_type_are_compared_exactly(dtype: str):
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    a, b = np.zeros(5, kind), np.zeros(5, kind)
    assert compare_params([(1, {"w": a}, {"w": b})]).differs_at is None
    b[3] = 1
    found = compare_params([(1, {"w": a}, {"w": b})])
    assert (found.differs_at, found.leaves[0].difference) == (1, 1.0)


def test_whole_numbers_beyond_what_floats_hold_still_differ():
    a = np.array([2**62])
    assert compare_params([(1, {"w": a}, {"w": a + 1})]).differs_at == 1


def test_leaves_that_are_missing_or_of_another_shape_are_named():
    a = {"w": np.zeros(2), "old": np.zeros(1), "scalar": np.float32(1)}
    b = {"w": np.zeros(3), "new": np.zeros(1), "scalar": np.float32(1)}
    found = compare_params([(5, a, b)])
    assert (found.only_in_a, found.only_in_b, found.other_shape, found.leaves) == (
        ("old",),
        ("new",),
        ("w",),
        (),
    )
    assert found.differs_at == 5


def test_comparing_imports_no_jax(tmp_path: Path):
    run = started(tmp_path, falling(5))
    code = "import sys\nfrom lapwing import Run\nfrom lapwing.report import compare_params, compare_runs\n"
    code += (
        "run = Run.open(sys.argv[1])\nassert compare_runs(run, run).differs_at is None\ncompare_params([])\n"
    )
    code += "assert not {'jax', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, run.folder], check=True)
