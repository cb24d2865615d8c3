import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from lapwing.journal import Run
from lapwing.train import Checkpoints

from .report.runs import ask, falling, started


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_checkpoints(run: Run, steps: dict[int, float]) -> None:
    checkpoints = Checkpoints(run.folder / "checkpoints", keep=len(steps))
    for step, value in steps.items():
        state = {
            "params": {"w": jnp.full(2, value), "b": jnp.zeros(3)},
            "keys": jnp.zeros(1) + id(run) % 1000,
        }
        checkpoints.save(state, step, {})
        checkpoints.wait()


def test_runs_that_part_and_why(capsys):
    losses = falling(100)
    first = started(Path("runs"), losses, seed=1)
    losses[40] += 0.5
    losses[60] += 0.5
    second = started(Path("runs"), losses[:80], seed=2)
    status, out, err = ask(capsys, "compare", first.name, second.name)
    assert (status, err) == (0, "")
    assert (
        f"They first differ at step 40, in loss: {losses[40] - 0.5:.9g} and {losses[40]:.9g}, a difference of 0.5, or"
        in out
    )
    assert "Compared: the 80 steps that both have (0 to 79)." in out
    words = [line.split() for line in out.splitlines()]
    assert ["A", first.name, "99"] in words
    assert ["B", second.name, "79"] in words
    assert ["seed", "1", "2"] in words

    status, out, _ = ask(capsys, "compare", first.name, second.name, "--json")
    found = json.loads(out)
    assert (found["differs_at"], found["metrics"][0]["name"], found["config"]) == (
        40,
        "loss",
        {"seed": [1, 2]},
    )


def test_runs_that_never_part(capsys):
    first, second = (started(Path("runs"), falling(30)) for _ in range(2))
    status, out, _ = ask(capsys, "compare", first.name, second.name)
    assert status == 0
    assert (
        "They never differ: loss, gradient_norm, clipped_norm, learning_rate are equal at the 30 steps that both have"
        in out
    )
    assert "Nothing differs in config, versions and device." in out


def test_a_metric_of_one_run_only_is_told(capsys):
    first, second = (started(Path("runs"), falling(5)) for _ in range(2))
    second.log({"step": 5, "eval_[bold]": 1.0})
    assert f"Only {second.name} has logged eval_[bold]." in ask(capsys, "compare", first.name, second.name)[1]


def test_the_parameters_of_checkpoints(capsys):
    first, second = (started(Path("runs"), falling(30)) for _ in range(2))
    with_checkpoints(first, {10: 1.0, 15: 1.0, 20: 2.0})
    with_checkpoints(second, {10: 1.0, 20: 2.5})
    status, out, err = ask(capsys, "compare", first.name, second.name, "--params")
    assert (status, err) == (0, "")
    assert (
        "Parameters first differ at the checkpoint of step 20; the checkpoints of step 10, 20 were compared."
        in out
    )
    assert ["params/w", "20", "2", "2.5", "0.5", "0.2"] in [line.split() for line in out.splitlines()]
    assert "params/b" not in out
    found = json.loads(ask(capsys, "compare", first.name, second.name, "--params", "--json")[1])
    assert (found["params"]["differs_at"], found["params"]["steps"]) == (20, [10, 20])
    same = ask(capsys, "compare", first.name, first.name, "--params")[1]
    assert "The parameters never differ, at the checkpoints of step 10, 15, 20." in same


def test_without_a_common_checkpoint_it_is_said_what_there_is(capsys):
    first, second = (started(Path("runs"), falling(30)) for _ in range(2))
    with_checkpoints(first, {10: 1.0})
    status, out, err = ask(capsys, "compare", first.name, second.name, "--params")
    assert (status, out) == (2, "")
    assert err == (
        f"lapwing: {first.name} has checkpoints of the steps 10 and {second.name} of none, so there are no common "
        "ones to compare; train both with the same --checkpoint.every and --checkpoint.keep-every\n"
    )


def test_runs_with_nothing_in_common_get_one_sentence(capsys):
    first, second = started(Path("runs"), [1.0]), Run.create("empty")
    status, out, err = ask(capsys, "compare", first.name, second.name)
    assert (status, out) == (2, "")
    assert "have logged no metric at the same step; compare two runs with common steps" in err
