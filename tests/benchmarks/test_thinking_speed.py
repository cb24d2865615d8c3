"""The rivals of the thinker's step compute what it does: the same loss, the same gradient."""

import importlib.util

import pytest

from benchmarks import thinking_speed


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["addition", "maze"])
def test_rivals_have_the_same_loss_and_gradient(problem, monkeypatch):
    small = {"problem": problem, "size": 3, "least": 3, "before": 4, "gradient_steps": 4, "batch_size": 4}
    monkeypatch.setitem(thinking_speed.CASES, "small", small)
    found = thinking_speed.measure("small", rounds=1)
    rivals = {"plain", *(["torch"] if importlib.util.find_spec("torch") else [])}
    assert set(found["loss"]) == {"lapwing", *rivals}
    assert all(loss == pytest.approx(found["loss"]["lapwing"], rel=1e-5) for loss in found["loss"].values())
    assert set(found["largest difference of a gradient"]) == rivals
    assert max(found["largest difference of a gradient"].values()) < 1e-4
    assert set(found["times faster"]) == {*rivals, "products, lax.scan"}
