"""The page on loops of one's own does what it says."""

from typing import Any

from lapwing.journal import Run
from tests.docs import DOCS, run_page

PAGE = DOCS / "any-loop.md"


def test_the_code_of_the_page_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lapwing.journal._loop.POLL_EVERY_S", 0.0)
    names: dict[str, Any] = {}
    for block in run_page(PAGE, names):
        assert block.printed == block.shown
    assert Run.open("runs/third").columns()["step"].tolist() == list(range(500))
    _is_called_by_a_framework(names["Journal"])


def _is_called_by_a_framework(journal: Any) -> None:
    class Model:
        stop_training = False

    with Run.create("keras", name="fourth") as run:
        callback = journal(run)
        callback.model, batch = Model(), 0
        while not callback.model.stop_training:
            batch += 1
            if batch == 5:
                Run.open(run.folder).post("stop")
            callback.on_train_batch_end(batch, {"loss": 1 / batch})
    assert (run.state, run.columns()["step"].tolist()) == ("stopped", [0, 1, 2, 3, 4])
