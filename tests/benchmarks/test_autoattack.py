"""The benchmark of AutoAttack beside the original: rows that are there are kept, and images are counted."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import autoattack, weights
from lapwing.bench.measure import BenchError
from lapwing.models import Cnn


@pytest.fixture(autouse=True)
def precision_as_before():
    before = jax.config.values["jax_default_matmul_precision"]
    yield
    jax.config.update("jax_default_matmul_precision", before)


def test_rows_that_are_there_are_kept_and_others_refused(tmp_path: Path, monkeypatch):
    def row(config: autoattack.Config, problem: Any, folder: Path) -> dict:
        found = {"natural": 0.9, "accuracy": {"total": 0.5}, "seconds": {}}
        about = {"network": problem.name, "norm": problem.norm, "eps": 0.1, "seed": problem.seed}
        return {**about, "lapwing": found, "original": None}

    monkeypatch.setattr(autoattack, "_row", row)
    monkeypatch.setattr(autoattack, "network_of", lambda *_: None)
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


def test_what_was_measured_is_not_measured_again(tmp_path: Path):
    calls = []
    for _ in range(2):
        found = autoattack._once(tmp_path / "deep" / "found.json", lambda: calls.append(1) or {"a": 1})
    assert (found, calls) == ({"a": 1}, [1])


@pytest.mark.slow
def test_a_network_from_a_file_is_the_one_that_was_saved(tmp_path: Path):
    for thresholds in (0, 3):
        network = Cnn.init(jax.random.key(0), (8, 8, 1), width=1, thresholds=thresholds)
        weights.save_network(network, tmp_path / "some" / "network.npz")
        loaded = weights.load_network(tmp_path / "some" / "network.npz")
        images = jax.random.uniform(jax.random.key(1), (4, 8, 8, 1))
        np.testing.assert_array_equal(loaded(images), network(images))
        assert [path.name for path in (tmp_path / "some").iterdir()] == ["network.npz"]
        half = weights.in_half(network)
        weights.save_network(half, tmp_path / "half.npz", np.float16)
        assert not np.array_equal(half(images), network(images)), "rounding should change something"
        np.testing.assert_array_equal(weights.load_network(tmp_path / "half.npz")(images), half(images))
        assert (tmp_path / "half.npz").stat().st_size < (tmp_path / "some" / "network.npz").stat().st_size


def test_images_that_fell_to_one_of_two_only_are_counted():
    here, there = [True, True, False, False], [True, False, False, False]
    assert (autoattack._count(here, there), autoattack._count(there, here)) == (1, 0)
