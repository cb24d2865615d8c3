"""The benchmark of several seeds keeps what is done and continues."""

import json

import pytest

from benchmarks import synthesis
from lapwing.bench.measure import BenchError


def found(links, worst, restarts):
    rows = [
        {"start": i, "restarts": n, "links": k, "right": k <= 30 and w <= 0.05}
        for i, (k, w, n) in enumerate(zip(links, worst, restarts, strict=True))
    ]
    return {"starts": rows, "rounds": 9, "seconds": 2.0, "processor_seconds": 3.0}


def test_a_seed_that_is_done_is_not_run_again(tmp_path, monkeypatch, capsys):
    asked = []

    def measure(config, seed):
        asked.append(seed)
        return found([8, 9, 40], [0.0, 1.0, 0.0], [0, 1, 0])

    monkeypatch.setattr(synthesis, "measure", measure)
    synthesis.run(synthesis.Config(seeds=(1, 2), out=str(tmp_path)))
    results = synthesis.run(synthesis.Config(seeds=(1, 2, 3), out=str(tmp_path)))
    assert asked == [1, 2, 3]
    synthesis.run(synthesis.Config(seeds=(1,), restarts=0, out=str(tmp_path)))
    assert asked == [1, 2, 3, 1], "other settings are other results"
    synthesis.show(results)
    assert "seed 3: 1 of 3 right (1 without a restart), links 8, 9 rounds, 2 s" in capsys.readouterr().out
    (file,) = tmp_path.iterdir()
    assert list(json.loads(file.read_text())["seeds"]) == ["1"]


def test_no_seeds_are_an_error():
    with pytest.raises(BenchError, match="expected at least one seed"):
        synthesis.run(synthesis.Config(seeds=(), out=""))
