"""The page on persistent kernels: its sentence on the plan is the planner's, and its pictures can be made."""

import importlib.util

from tests.docs import DOCS, pictures_of

PAGE = DOCS / "persistent.md"

spec = importlib.util.spec_from_file_location("persistent_pictures", DOCS / "persistent_pictures.py")
assert spec is not None
assert spec.loader is not None
pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pictures)


def test_the_plan_is_the_one_of_the_planner():
    text = PAGE.read_text(encoding="utf-8")
    assert text == pictures.page(text), "`python docs/persistent_pictures.py` makes it again"


def test_the_pictures_can_be_made(tmp_path):
    assert pictures_of(PAGE) == {pictures.OWNERS.name, pictures.STEP.name}
    for draw in (pictures.draw_owners, pictures.draw_step):
        draw(tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_a_plan_that_splits_says_so(monkeypatch):
    stages, plan = pictures.lstm_plan()
    split = type(plan)(groups=1, rows=16, heads=1, blocks=96, units=8, split=4)
    monkeypatch.setattr(pictures, "lstm_plan", lambda: (stages, split))
    said = " ".join(pictures.sentence().split())
    assert "96 blocks: 1 group of 96, and 16 rows of the batch" in said
    assert "keeps 128 of the 3072 columns" in said
    assert said.endswith("48 kB: those of its cluster of 4, for 192 of the 768 published units.")
