"""Rounds: the host changes what is trained after every so many steps, and a resumed run does the same."""

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.journal import Run
from lapwing.task import Rounds, Turn
from lapwing.train import Checkpoints, ConfigError, FitConfig, fit
from lapwing.trees import StructureError

from .tasks import line, same_bits

OPTIONS = {"learning_rate": 0.1, "laps_every": 0, "log_every": 5, "steps": 40}


def narrowing(compiled: list | None = None, **changes):
    """After each round one more weight is cut; the loss is another one for each number of weights."""
    base = line()
    losses = {}

    def init(key):
        return {**base.init(key), "kept": jnp.ones(3, bool)}

    def turn(params, optimizer):
        kept = params["kept"].copy()
        kept[np.argmax(kept)] = False
        said = f"{kept.sum()} weights left"
        params = {**params, "kept": kept, "w": params["w"] * kept}
        return Turn(params, optimizer, said, {"left": int(kept.sum())}, over=not kept.any())

    def loss_of(params):
        count = int(params["kept"].sum())

        def loss(params, batch):
            if compiled is not None:
                compiled.append(count)
            return jnp.mean((batch @ (params["w"] * params["kept"] - 1.0)) ** 2) + params["b"] ** 2, {}

        return losses.setdefault(count, loss)

    def trainable(params):
        return {"w": True, "b": True, "kept": False}

    rounds = Rounds(10, turn, loss_of)
    return line(**{"init": init, "trainable": trainable, "rounds": rounds, **changes})


def test_each_round_is_a_turn_and_a_journal_entry(tmp_path):
    config = FitConfig(**OPTIONS)
    with Run.create("rounds", config, runs_dir=tmp_path) as run:
        result = fit(narrowing(), config, run, quiet=True)
    assert (result.ended, int(result.state.step)) == ("finished", 30)
    assert result.outcome.startswith("0 weights left; 30 steps")
    told = [(e["step"], e["left"]) for e in Run.open(run.folder).events() if e["event"] == "round"]
    assert told == [(10, 2), (20, 1), (30, 0)]
    assert "1 weights left" in (run.folder / "journal.md").read_text()
    assert not result.params["kept"].any()


def test_each_round_leaves_a_checkpoint(tmp_path):
    task = narrowing()
    assert task.rounds is not None
    usual = task.rounds.turn

    def turn(params, optimizer):
        if not params["kept"].all():
            raise RuntimeError("in the second round")
        return usual(params, optimizer)

    config = FitConfig(**OPTIONS)
    with pytest.raises(RuntimeError), Run.create("rounds", config, runs_dir=tmp_path) as run:
        fit(narrowing(rounds=Rounds(10, turn)), config, run, quiet=True)
    assert [c.step for c in Checkpoints(run.checkpoints).all()][-1] == 10


def test_the_loss_is_compiled_again_only_when_it_is_another_one():
    compiled = []
    fit(narrowing(compiled), FitConfig(**OPTIONS), quiet=True)
    assert sorted(set(compiled)) == [1, 2, 3]
    once = []
    same = narrowing(once)
    assert same.rounds is not None
    constant = same.rounds.loss({"kept": np.ones(3, bool)})  # type: ignore[misc]
    rounds = Rounds(10, same.rounds.turn, lambda params: constant)
    fit(narrowing(rounds=rounds), FitConfig(**OPTIONS), quiet=True)
    traces = len(once)
    fit(
        narrowing(rounds=Rounds(30, same.rounds.turn, lambda params: constant)),
        FitConfig(**OPTIONS),
        quiet=True,
    )
    assert len(once) == 2 * traces


@pytest.mark.slow
@pytest.mark.parametrize(
    "stopped_at", [7, *(pytest.param(step, marks=pytest.mark.slow) for step in (10, 25))]
)
def test_a_resumed_run_takes_the_same_turns(tmp_path, stopped_at):
    whole = fit(narrowing(), FitConfig(**OPTIONS), quiet=True)
    short = FitConfig(**{**OPTIONS, "steps": stopped_at})
    with Run.create("rounds", short, runs_dir=tmp_path) as run:
        fit(narrowing(), short, run, quiet=True)
    with Run.reopen(run.folder) as run:
        resumed = fit(narrowing(), FitConfig(**OPTIONS), run, quiet=True, allow_change=True)
    assert same_bits(whole.params, resumed.params)
    assert [e["left"] for e in Run.open(run.folder).events() if e["event"] == "round"] == [2, 1, 0]


def test_a_call_that_does_not_fit_into_a_round_is_refused():
    with pytest.raises(ConfigError, match="steps_per_call should divide the 10 steps of a round, but is 4"):
        fit(narrowing(), FitConfig(**OPTIONS, steps_per_call=4), quiet=True)


def test_a_turn_that_changes_the_shape_of_what_is_trained_is_refused():
    def turn(params, optimizer):
        return Turn({**params, "w": params["w"][:2]}, optimizer, "", {})

    with pytest.raises(StructureError, match="params_after_the_round"):
        fit(narrowing(rounds=Rounds(10, turn)), FitConfig(**OPTIONS), quiet=True)
