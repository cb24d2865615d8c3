"""The benchmark of AutoAttack beside the original: rows that are there are kept, and images are counted."""

import json
from pathlib import Path

import jax
import pytest

from benchmarks import autoattack
from lapwing.bench.measure import BenchError


@pytest.fixture(autouse=True)
def precision_as_before():
    before = jax.config.values["jax_default_matmul_precision"]
    yield
    jax.config.update("jax_default_matmul_precision", before)


def test_rows_that_are_there_are_kept_and_others_refused(tmp_path: Path, monkeypatch):
    def row(config: autoattack.Config, network: str, norm: str, seed: int, *_) -> dict:
        found = {"natural": 0.9, "accuracy": {"total": 0.5}, "seconds": {}}
        return {
            "network": network,
            "norm": norm,
            "eps": 0.1,
            "seed": seed,
            "lapwing": found,
            "original": None,
        }

    monkeypatch.setattr(autoattack, "_row", row)
    config = autoattack.Config(networks=("natural",), images=20, out=str(tmp_path))
    autoattack.run(config)
    (path,) = tmp_path.iterdir()
    written = json.loads(path.read_text())
    written["rows"][0]["eps"] = 0.123
    path.write_text(json.dumps(written))
    more = {**vars(config), "resume": True, "seeds": (0, 1), "data": "", "weights": "elsewhere"}
    again = autoattack.run(autoattack.Config(**more))
    assert [(row["seed"], row["eps"]) for row in again["rows"]] == [(0, 0.123), (1, 0.1)]
    with pytest.raises(BenchError, match="was measured with other options; leave out --resume"):
        autoattack.run(autoattack.Config(**{**more, "queries": 10}))
    with pytest.raises(BenchError, match="parts are natural, replay, weak, not 'strong'"):
        autoattack.run(autoattack.Config(networks=("strong",)))


def test_images_that_fell_to_one_of_two_only_are_counted():
    here, there = [True, True, False, False], [True, False, False, False]
    assert (autoattack._count(here, there), autoattack._count(there, here)) == (1, 0)
