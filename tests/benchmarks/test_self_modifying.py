"""Machines that edit themselves are learned from their answers alone."""

import json
from pathlib import Path

import pytest

from benchmarks import self_modifying


@pytest.mark.slow
@pytest.mark.parametrize("periods", [(5,), (2, 3, 4, 6)], ids=["one", "others"])
def test_a_wave_learns_its_period(periods):
    config = self_modifying.Config(("wave",), seeds=(7,), starts=4, periods=periods, steps=2000, out="")
    found = self_modifying.run(config)["wave"]
    assert sum(row["learned"] for rows in found.values() for row in rows) >= 4 * len(periods) - 1


@pytest.mark.slow
def test_a_growing_machine_learns_its_template(tmp_path: Path, capsys):
    config = self_modifying.Config(parts=("compile", "growth"), seeds=(7,), starts=4, out=str(tmp_path))
    results = self_modifying.run(config)
    assert results["growth"]["positive numbers"][0]["learned"] == 4
    self_modifying.show(results)
    assert "growing machine from positive numbers: learned 4 of 4" in capsys.readouterr().out
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text())["growth"] == results["growth"]
