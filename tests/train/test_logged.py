"""What the host logs besides numbers while `fit` holds the run."""

from pathlib import Path

import numpy as np

import lapwing as lw
from lapwing.journal import Run
from lapwing.task import Callback
from lapwing.train import FitConfig, fit

from .tasks import line


def test_pictures_are_logged_at_the_newest_step_of_a_run_that_fit_writes(tmp_path: Path):
    run = Run.create("line", runs_dir=tmp_path)

    class Log(Callback):
        def on_end(self, event):
            weights = lw.Histogram(event.params["w"])
            event.run.log(weights=weights, picture=lw.Image(np.ones((2, 2))), said="done")
            event.run.log(step=3, early="at an earlier step")

    fit(line(callbacks=[Log()]), FitConfig(steps=5, laps_every=0), run, quiet=True)
    entries = [(entry["name"], entry["step"], entry["kind"]) for entry in Run.open(run.folder).logged()]
    assert entries == [
        ("weights", 4, "histogram"),
        ("picture", 4, "image"),
        ("said", 4, "text"),
        ("early", 3, "text"),
    ]
    assert run.columns()["step"].tolist() == [0, 1, 2, 3, 4]


class Say(Callback):
    def on_end(self, event):
        event.run.log(said="kept")


def test_a_resumed_run_undoes_what_was_logged_after_its_checkpoint(tmp_path: Path):
    config = FitConfig(steps=4, laps_every=0)
    run = Run.create("line", config, runs_dir=tmp_path)
    fit(line(), config, run, callbacks=[Say()], quiet=True)
    with Run.reopen(run.folder) as killed:
        killed.log({"step": 4, "loss": 1.0, "said": "after the checkpoint of step 4"})
    again = Run.reopen(run.folder)
    fit(line(), FitConfig(steps=6, laps_every=0), again, quiet=True, allow_change=True)
    assert [entry["text"] for entry in Run.open(run.folder).logged()] == ["kept"]
    assert np.count_nonzero(again.columns()["step"] == 4) == 1
