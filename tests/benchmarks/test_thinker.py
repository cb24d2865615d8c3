"""The benchmarks of the thinker: the same computation, results written, a picture drawn."""

from pathlib import Path

import pytest

from benchmarks import thinker
from benchmarks.thinker_results import GRID_LATENTS, GRID_STEPS, heat_map


@pytest.mark.slow
def test_both_versions_have_the_same_loss(tmp_path: Path, capsys):
    config = thinker.Config(
        sizes=("copy,2",), batch=2, latents=1, rounds=3, compiling=False, phases=(), out=str(tmp_path)
    )
    results = thinker.run(config)
    assert results["speed"][0]["difference"] < 1e-5
    thinker.show(results)
    assert "loss and gradient, 8 thinking steps" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["thinker-cpu.json"]


def test_the_heat_map_is_drawn(tmp_path: Path):
    cells = [{"found": [{"token_accuracy": 0.5}]} for _ in GRID_LATENTS for _ in GRID_STEPS]
    heat_map(cells, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 5000
