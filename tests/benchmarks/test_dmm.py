"""The benchmark compares the same computation."""

import json

import jax
import numpy as np
import pytest

from benchmarks import dmm as bench
from benchmarks.dmm_by_hand import answers_of


def test_the_machine_written_by_hand_answers_like_the_compiled_one():
    program = bench.compiled_lite(30)
    assert len(program.paths) == 851
    by_hand = jax.jit(answers_of(program.machine, 30))(program.start)
    compiled = jax.jit(program.answers)(program.start)
    assert np.abs(compiled).max() > 0.01
    np.testing.assert_allclose(by_hand, compiled, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.native
def test_results_are_written_and_shown(tmp_path, capsys):
    config = bench.Config(parts=("step",), rounds=1, out=str(tmp_path))
    results = bench.run(config)
    losses = results["step"]["losses"]
    assert all(abs(loss / losses["by hand"] - 1) < 1e-4 for loss in losses.values())
    assert json.loads((tmp_path / "dmm-step-cpu.json").read_text())["step"]["ratio"] > 0
    bench.show(results)
    assert "training step of DMM Lite, 140 cycles: by hand" in capsys.readouterr().out
