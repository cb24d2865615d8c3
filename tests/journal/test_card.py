import math
import re
import xml.dom.minidom
from pathlib import Path

from lapwing.journal import Run
from lapwing.journal._card import MOST_POINTS


def parts_of(run: Run) -> tuple[str, list[list[tuple[float, float]]]]:
    """The words of a card, and the points of its lines; the card must be well-formed."""
    text = run._repr_html_()
    document = xml.dom.minidom.parseString(text)
    lines = [
        [tuple(map(float, point.split(","))) for point in line.getAttribute("points").split()]
        for line in document.getElementsByTagName("polyline")
    ]
    return re.sub("<title>.*</title>|<.*?>", "", text), lines


def test_a_card_says_what_became_of_the_run(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(*({"step": step, "loss": loss} for step, loss in enumerate([1.0, 0.01, 0.1])))
        run.log({"step": 3, "eval_accuracy": 0.5})
        assert f"{run.name} ● running" in parts_of(run)[0]
    words, lines = parts_of(Run.open(run.folder))
    assert words == f"{run.name} ● finishedstep 2 · loss 0.1 · best 0.01"
    # A log axis: one tenth of the way from 0.01 to 1 is a half of the height.
    assert lines == [[(4.0, 4.0), (160.0, 68.0), (316.0, 36.0)]]


def test_the_curve_is_broken_where_the_loss_is_not_finite(tmp_path: Path):
    losses = [1.0, 0.5, math.nan, 0.4, math.inf, 0.3, 0.2]
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(*({"step": step, "loss": loss} for step, loss in enumerate(losses)))
    words, lines = parts_of(run)
    assert words.endswith("loss 0.2 · best 0.2")
    assert [len(line) for line in lines] == [2, 1, 2]


def test_a_long_run_has_a_small_card_with_its_spike(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path) as run:
        run.log(*({"step": step, "loss": 100.0 if step == 7777 else 1.0} for step in range(20_000)))
    _, (line,) = parts_of(run)
    assert len(line) <= MOST_POINTS
    assert sum(y < 10 for _, y in line) == 1


def test_a_run_without_a_loss_has_a_card_too(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    assert parts_of(run) == (f"{run.name} ● runningnothing logged yet", [])
    run.log({"step": 5})
    assert parts_of(run) == (f"{run.name} ● runningstep 5", [])
    run.log({"step": 6, "loss": math.nan})
    assert parts_of(run) == (f"{run.name} ● runningstep 6 · loss nan", [])


def test_a_name_is_not_taken_for_html(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    run.folder = run.folder.rename(tmp_path / "<script>alert(1)<")
    assert "<script" not in run._repr_html_()
    assert "&lt;script&gt;" in run._repr_html_()
