"""The benchmark of thinkers: each seed is written, resumes, and needs nothing of the command line."""

import json
import subprocess
import sys
from argparse import Namespace

import jax
import numpy as np
import pytest

from benchmarks import thinking
from lapwing.models import LoopedSize

SMALL = {
    "base": 2, "size": 3, "before": 3, "gradient_steps": 4, "batch_size": 8, "steps": 6,
    "model": LoopedSize(width=8, halting=True),
}  # fmt: skip


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setitem(thinking.SETTINGS, "addition", SMALL)
    monkeypatch.setitem(thinking.SIZES, "addition", {6: 8})
    return ["--problem", "addition", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]


def seeds_of(tmp_path):
    return json.loads((tmp_path / f"thinking-addition-{jax.default_backend()}.json").read_text())


@pytest.mark.slow
def test_a_seed_that_is_over_in_time_is_written_as_it_is_and_not_trained_again(small, tmp_path, capsys):
    assert thinking.main([*small, "--seeds", "1", "--minutes", "1e-6"]) == 0
    found = seeds_of(tmp_path)
    assert found["settings"]["model"]["halting"] is True
    (row,) = found["seeds"]
    assert (row["seed"], row["steps"]) == (0, 1)  # A step is always made.
    assert [size["size"] for size in row["sizes"]] == [6]
    assert (
        set(row["sizes"][0]["rules"]) == set(row["sizes"][0]["hard"]["rules"]) == {"fixed", "settled", "sure"}
    )
    capsys.readouterr()
    assert thinking.main([*small, "--seeds", "1"]) == 0
    assert capsys.readouterr().out == ""
    assert seeds_of(tmp_path) == found


@pytest.mark.slow
def test_an_interrupted_seed_continues(tmp_path):
    def trained(name, minutes):
        return thinking.trained(name, SMALL, [0], Namespace(runs=tmp_path, minutes=minutes))[0]

    whole, first, second = trained("whole", np.inf), trained("parts", 1e-6), trained("parts", np.inf)
    assert (int(first.state.step), int(second.state.step), len(second.metrics["loss"])) == (1, 6, 6)
    assert second.seconds > first.seconds
    for one, other in zip(jax.tree.leaves(whole.params), jax.tree.leaves(second.params), strict=True):
        np.testing.assert_array_equal(one, other)


WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('tyro', 'rich', 'orbax', 'plotly', 'starlette')));"


def test_nothing_of_the_command_line_is_needed():
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT} import benchmarks.thinking"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("together", [[], ["--together"]])
def test_seeds_are_trained_and_written_without_it(tmp_path, together):
    words = ["--problem", "addition", "--seeds", "2", "--steps", "2", "--count", "4", *together]
    words += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path)]
    code = f"{WITHOUT} from benchmarks import thinking; thinking.SIZES['addition'] = {{10: 4}}; thinking.main({words})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [(row["seed"], row["steps"]) for row in seeds_of(tmp_path)["seeds"]] == [(0, 2), (1, 2)]
