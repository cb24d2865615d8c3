"""The benchmark of attacks measures what it says: the same images, parts that add up."""

from pathlib import Path

import pytest

from benchmarks import attack


@pytest.mark.slow
def test_the_ways_agree_and_their_parts_add_up(tmp_path: Path, capsys):
    config = attack.Config(widths=(1,), pixels=8, batch=3, steps=2, rounds=1, out=str(tmp_path))
    results = attack.run(config)
    found = results["widths"]["1"]
    assert found["difference"] < 1e-5
    assert len(found["ways"]) == 5
    for times in found["ways"].values():
        parts = sum(times[name] for name in (*attack.PHASES, "unaccounted"))
        assert parts == pytest.approx(times["step"], rel=1e-6)
    attack.show(results)
    assert "then (2018)" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"attack-cpu.json", "attack-cpu.png"}
