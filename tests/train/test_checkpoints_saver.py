"""The loop's side of checkpoints: when one is due, and what happens when one fails or is damaged."""

import threading
from pathlib import Path

import jax
import pytest

from lapwing.journal import Run
from lapwing.train import Checkpointing, FitConfig
from lapwing.train._saver import Place, Saver
from lapwing.train._state import initial_state

from .tasks import line, same_bits


@pytest.fixture(scope="module")
def state():
    return initial_state(line(), FitConfig(steps=1))[0]


def place(state, step: int) -> Place:
    """Another state at each step."""
    return Place(
        step, state._replace(params=jax.tree.map(lambda leaf: leaf + step, state.params)), {"at": step}
    )


def test_a_damaged_best_is_named_and_the_newest_takes_its_place(tmp_path: Path, state, capsys):
    with Run.create("line", runs_dir=tmp_path) as run:
        saver = Saver(run, Checkpointing())
        saver.save(place(state, 9), best=place(state, 5))
        saver.close()
        best = run.checkpoints / "000001-step-5.safetensors"
        best.write_bytes(best.read_bytes().replace(b"step", b"stop", 1))
        found = Saver(run, Checkpointing()).newest(state)
    assert found is not None
    assert [each.step for each in found] == [9, 9]
    assert same_bits(found[0].state, place(state, 9).state)
    error = (
        f"the checkpoint {best} is damaged: its header was changed after it was written; the best state is lost, "
        "that of step 9 takes its place, and the search for the best starts again there"
    )
    assert error in capsys.readouterr().err
    assert error in [event.get("message") for event in run.events()] or error in run.story


def test_the_best_comes_back_with_the_newest(tmp_path: Path, state, capsys):
    with Run.create("line", runs_dir=tmp_path) as run:
        saver = Saver(run, Checkpointing())
        best = place(state, 5)
        for step in (6, 7, 8):
            saver.save(place(state, step), best)
        saver.close()
        found = Saver(run, Checkpointing()).newest(state)
    assert found is not None
    assert [(each.step, each.record["at"]) for each in found] == [(8, 8), (5, 5)]
    assert same_bits(found[1].state, best.state)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        "000001-step-5.safetensors",
        "000003-step-7.safetensors",
        "000004-step-8.safetensors",
    ]
    assert capsys.readouterr().err == ""


def test_it_is_not_late_while_one_is_written(tmp_path: Path, state, monkeypatch):
    ready = threading.Event()
    monkeypatch.setattr("lapwing.train._checkpoints.write_checkpoint", lambda *_: ready.wait())
    monkeypatch.setattr("lapwing.train._checkpoints.Checkpoints.find", lambda *_: None)
    monkeypatch.setattr("lapwing.train._checkpoints.Checkpoints.arrays", lambda *_: {})
    with Run.create("line", runs_dir=tmp_path) as run:
        saver = Saver(run, Checkpointing(seconds=1e-6))
        assert saver.is_late()
        saver.save(place(state, 1), place(state, 0))
        assert not saver.is_late()
        ready.set()
        saver.finish()
        assert saver.is_late()
        saver.close()


def test_a_failure_is_reported_and_the_best_is_written_again(tmp_path: Path, state, monkeypatch, capsys):
    with Run.create("line", runs_dir=tmp_path) as run:
        saver, best = Saver(run, Checkpointing()), place(state, 0)
        with monkeypatch.context() as broken:
            broken.setattr(
                "lapwing.train._checkpoints.write_checkpoint",
                lambda *_: (_ for _ in ()).throw(OSError(28, "Full")),
            )
            saver.save(place(state, 1), best)
            while saver._checkpoints.is_busy:
                pass
        saver.save(place(state, 2), best)
        saver.close()
    assert "cannot write the checkpoint of step 1 to " in capsys.readouterr().err
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        "000003-step-0.safetensors",
        "000004-step-2.safetensors",
    ]
    assert "checkpoint failed" in {event["event"] for event in run.events()}
